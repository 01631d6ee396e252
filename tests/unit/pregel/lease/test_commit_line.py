"""The line of a run's commits: who waits how long, and nothing after the end."""

from __future__ import annotations

import pytest

from perdure.checkpoint.base import Commit, RunEnd, WriteRow
from perdure.errors import StaleRunError
from perdure.pregel.lease.commit_line import CommitLine
from tests.unit.pregel.savers import WatchedSaver


def named(name: str, end: RunEnd | None = None) -> Commit:
    return Commit(thread_id="t", writes=[WriteRow("", "c", name, "~", 0, "x", b"1")], end=end)


async def test_who_waits_for_a_commit_does_not_wait_for_those_that_keep_coming() -> None:
    saver = WatchedSaver()
    line = CommitLine(saver)

    async def more_comes(commit: Commit) -> None:
        if len(saver.sent) < 50:
            line.put(named(f"late {len(saver.sent)}"), superstep=False)

    saver.before_commit = more_comes
    line.put(named("awaited"), superstep=False)
    await line.settle()

    assert [[row.task_id for row in commit.writes] for commit in saver.acknowledged] == [["awaited"]]


async def test_after_the_end_nothing_is_put_and_the_end_is_sent() -> None:
    saver = WatchedSaver()
    line = CommitLine(saver)
    line.put(named("last"), superstep=False)
    line.put(named("end", RunEnd(status="success")), superstep=True)
    assert line.ending
    for _ in range(2):
        with pytest.raises(StaleRunError, match=r"'t' has ended, .* Await everything that a node starts"):
            line.put(named("too late"), superstep=False)
        await line.settle()

    [sent] = saver.sent
    assert [row.task_id for row in sent.writes] == ["last", "end"]
    assert sent.end == RunEnd(status="success")
