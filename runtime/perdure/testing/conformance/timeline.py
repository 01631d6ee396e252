"""Threads that are written by hand, checkpoint by checkpoint."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

import orjson

from perdure.checkpoint.base import (
    CHECKPOINT_FORMAT,
    BlobRow,
    Checkpoint,
    CheckpointMetadata,
    CheckpointRow,
    CheckpointTuple,
    Commit,
    Fence,
    RunEnd,
    WriteRow,
)
from perdure.clock import IdSource
from perdure.ids import make_version
from perdure.testing.conformance.subject import Subject


def new_name(kind: str) -> str:
    """Return a thread id, run id or graph name that nobody else uses."""
    return f"{kind}-{uuid4()}"


class Timeline:
    """One namespace of a thread, written by hand, checkpoint by checkpoint.

    Attributes:
        config: addresses the newest checkpoint written so far.
        ids: of the checkpoints, oldest first.
    """

    def __init__(self, subject: Subject, thread_id: str | None = None, ns: str = "") -> None:
        self.saver = subject.saver
        self.thread_id = thread_id or new_name("thread")
        self.ns = ns
        self.place = {"configurable": {"thread_id": self.thread_id, "checkpoint_ns": ns}}
        self.config: dict[str, Any] = self.place
        self.ids: list[str] = []
        self.versions: dict[str, str] = {}
        self._source = IdSource()

    def next_id(self) -> str:
        """Draw the id of the next checkpoint and append it to `ids`."""
        self.ids.append(self._source.next())
        return self.ids[-1]

    def _change(self, channels: Mapping[str, Any]) -> dict[str, str]:
        new = dict.fromkeys(channels, make_version(len(self.ids), self.ids[-1]))
        self.versions = self.versions | new
        return new

    def metadata(self, more: Mapping[str, Any]) -> CheckpointMetadata:
        return {"source": "loop", "step": len(self.ids) - 1, "parents": {}, **more}  # type: ignore[typeddict-item]

    async def put(
        self,
        values: Mapping[str, Any] | None = None,
        *,
        seen: Mapping[str, Mapping[str, str]] | None = None,
        drop: Sequence[str] = (),
        **metadata: Any,
    ) -> dict[str, Any]:
        """Store a checkpoint that changed these values and took those channels away."""
        checkpoint_id = self.next_id()
        new_versions = self._change(values or {})
        self.versions = {channel: at for channel, at in self.versions.items() if channel not in drop}
        checkpoint = Checkpoint(
            v=CHECKPOINT_FORMAT,
            id=checkpoint_id,
            ts="2025-01-02T03:04:05.678901+00:00",
            channel_values=dict(values or {}),
            channel_versions=self.versions,
            versions_seen={node: dict(versions) for node, versions in (seen or {}).items()},
            updated_channels=sorted(values or {}),
        )
        self.config = await self.saver.aput(self.config, checkpoint, self.metadata(metadata), new_versions)
        return self.config

    async def put_many(self, count: int, **metadata: Any) -> None:
        """Store so many checkpoints, each with its number as the value of "n"."""
        for number in range(count):
            await self.put({"n": number}, **metadata)

    def commit(
        self,
        values: Mapping[str, Any] | None = None,
        *,
        fence: Fence | None = None,
        end: RunEnd | None = None,
        **metadata: Any,
    ) -> Commit:
        """Make, but do not send, the commit of a checkpoint that changed these values."""
        parent = self.ids[-1] if self.ids else None
        checkpoint_id = self.next_id()
        new_versions = self._change(values or {})
        row = CheckpointRow(
            ns=self.ns,
            checkpoint_id=checkpoint_id,
            parent_id=parent,
            ts="2025-01-02T03:04:05.678901+00:00",
            versions=orjson.dumps(self.versions),
            seen=b"{}",
            metadata=self.metadata(metadata),
        )
        blobs = [
            BlobRow(self.ns, channel, new_versions[channel], self.saver.serde.dumps(value))
            for channel, value in (values or {}).items()
        ]
        return Commit(
            thread_id=self.thread_id,
            fence=fence,
            last_id=checkpoint_id,
            checkpoints=(row,),
            blobs=blobs,
            end=end,
        )

    def write(self, task_id: str, idx: int, channel: str, value: Any, task_path: str = "") -> WriteRow:
        """Make, but do not send, a write pending on the newest checkpoint."""
        payload = self.saver.serde.dumps(value)
        return WriteRow(self.ns, self.ids[-1], task_id, task_path, idx, channel, payload)

    def writes(self, *rows: WriteRow, fence: Fence | None = None) -> Commit:
        return Commit(thread_id=self.thread_id, fence=fence, writes=rows)

    async def head(self) -> CheckpointTuple:
        """Read the newest checkpoint of this namespace."""
        return found(await self.saver.aget_tuple(self.place), self.thread_id)

    async def at(self, config: Mapping[str, Any]) -> CheckpointTuple:
        return found(await self.saver.aget_tuple(config), str(config))

    async def stored_ids(self) -> list[str]:
        """Read the ids of all checkpoints of this namespace, newest first."""
        return await ids_of(self.saver.alist(self.place))


def found(stored: CheckpointTuple | None, what: str) -> CheckpointTuple:
    if stored is None:
        raise AssertionError(f"no checkpoint of {what} was found")
    return stored


async def ids_of(listed: AsyncIterator[CheckpointTuple]) -> list[str]:
    return [stored.checkpoint["id"] async for stored in listed]


def pending(stored: CheckpointTuple) -> list[tuple[str, str, Any]]:
    return [tuple(write) for write in stored.pending_writes or []]


async def full_thread(subject: Subject) -> tuple[Timeline, Timeline]:
    """Make a root and a child of three checkpoints each, with writes on the oldest and on the newest."""
    root = Timeline(subject)
    child = Timeline(subject, root.thread_id, ns="child:1")
    for timeline in (root, child):
        for number in range(3):
            config = await timeline.put({"n": number} if number else {"n": 0, "first": timeline.ns})
            if number != 1:
                await subject.saver.aput_writes(config, [("n", number + 1)], f"task-{number}")
    return root, child


async def everything(subject: Subject, thread_id: str) -> list[str]:
    return await ids_of(subject.saver.alist({"configurable": {"thread_id": thread_id}}))
