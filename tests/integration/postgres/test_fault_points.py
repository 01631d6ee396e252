"""Where tests stop, delay or kill a run: before something is sent, and after it was acknowledged."""

from __future__ import annotations

import pytest

from perdure import faults
from perdure.checkpoint.base import Commit
from perdure_checkpointers.postgres import PostgresSaver
from tests.integration.postgres.threads import Server, commit, new_thread, pending, request


async def test_what_is_stored_at_each_point(
    saver: PostgresSaver, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[object, ...]] = []

    async def hook(point: str, subject: str) -> None:
        counts = [await server.count(table) for table in ("runs", "checkpoints", "task_writes")]
        seen.append((point, subject, *counts))

    monkeypatch.setattr(faults, "hook", hook)
    thread_id = new_thread()
    fence = (await saver.aclaim(request(thread_id))).fence
    step = commit(fence, writes=0)
    await saver.acommit(step)
    await saver.acommit(Commit(thread_id=thread_id, fence=fence, writes=[pending(str(step.last_id), 0)]))
    assert seen == [
        ("claim.send", thread_id, 0, 0, 0),
        ("claim.acknowledged", thread_id, 1, 0, 0),
        ("commit.send", thread_id, 1, 0, 0),
        ("commit.acknowledged", thread_id, 1, 1, 0),
        ("writes.send", thread_id, 1, 1, 0),
        ("writes.acknowledged", thread_id, 1, 1, 1),
    ]
