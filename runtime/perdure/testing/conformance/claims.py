"""Claims of threads, and commits that must be refused."""

from __future__ import annotations

from typing import Any, Final

from perdure.checkpoint.base import Claim, ClaimRequest, Commit, RunEnd
from perdure.errors import StaleRunError
from perdure.testing.conformance.expectations import expect, expect_error
from perdure.testing.conformance.subject import Subject
from perdure.testing.conformance.timeline import Timeline, new_name

SUCCESS: Final = RunEnd(status="success")


def request(thread_id: str, run_id: str | None = None, **more: Any) -> ClaimRequest:
    """Claim this thread for a run, a new one unless it is named."""
    fields: dict[str, Any] = {"graph": "graph", "signature": "signature", "input": b"null", **more}
    return ClaimRequest(thread_id=thread_id, run_id=run_id or new_name("run"), **fields)


async def claimed(subject: Subject, run_id: str | None = None) -> tuple[Timeline, Claim]:
    """Make a new thread, held by a run."""
    timeline = Timeline(subject)
    return timeline, await subject.leased.aclaim(request(timeline.thread_id, run_id))


async def expect_stale(subject: Subject, timeline: Timeline, commit: Commit) -> None:
    """Check that a commit is refused, and that nothing of it is stored."""
    before = await timeline.stored_ids()
    naming = [timeline.thread_id, commit.fence.run_id if commit.fence else ""]
    await expect_error(subject.saver.acommit(commit), StaleRunError, naming=naming)
    expect(await timeline.stored_ids(), before, "the ids after a refused commit")
