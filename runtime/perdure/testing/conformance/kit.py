"""The parts of a check: the saver that it is shown, threads written by hand, and expectations."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import orjson

from perdure.checkpoint.base import (
    CHECKPOINT_FORMAT,
    BaseCheckpointSaver,
    BlobRow,
    Checkpoint,
    CheckpointMetadata,
    CheckpointRow,
    CheckpointTuple,
    Claim,
    ClaimRequest,
    Commit,
    Fence,
    LeasedSaver,
    RunEnd,
    WriteRow,
)
from perdure.clock import IdSource
from perdure.errors import StaleRunError
from perdure.ids import make_version
from perdure.testing.exact import exactly_equal


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A saver under test.

    Attributes:
        expire: makes the lease of the run that holds this thread run out, as if its process had been
            gone for long. Other leases may run out with it. Needed for the capability "leases".
    """

    saver: BaseCheckpointSaver
    expire: Callable[[str], Awaitable[None]] | None = None

    @property
    def leased(self) -> LeasedSaver:
        if not isinstance(self.saver, LeasedSaver):
            raise TypeError(f"{type(self.saver).__name__} has no leases: leave out the capability 'leases'.")
        return self.saver

    async def expire_lease(self, thread_id: str) -> None:
        if self.expire is None:
            raise TypeError("Leases cannot be checked without Subject(expire=...).")
        await self.expire(thread_id)


CheckFunction = Callable[[Subject], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that every saver does. Awaiting a call raises AssertionError where it does not.

    Checks use threads and runs of their own: they may share a saver, one after the other.
    """

    capability: str
    name: str
    function: CheckFunction

    async def __call__(self, subject: Subject) -> None:
        await self.function(subject)

    def __str__(self) -> str:
        return f"{self.capability}: {self.name}"


class Capability:
    """Collects checks of one capability, in the order in which they are written."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.checks: list[Check] = []

    def check(self, function: CheckFunction) -> CheckFunction:
        self.checks.append(Check(self.name, function.__name__, function))
        return function


# Expectations


def expect(actual: Any, expected: Any, what: str) -> None:
    """Equal and of the same type."""
    if not exactly_equal(actual, expected):
        raise AssertionError(f"{what}: expected {expected!r}, got {actual!r}")


def expect_that(truth: object, what: str) -> None:
    if not truth:
        raise AssertionError(f"not so: {what}")


async def expect_error(
    call: Awaitable[object], *kinds: type[Exception], naming: Sequence[str] = ()
) -> Exception:
    """Return the error that `call` raises, of one of these kinds, with a message that names these texts."""
    wanted = " or ".join(kind.__name__ for kind in kinds)
    try:
        answer = await call
    except kinds as error:
        for text in naming:
            expect_that(text in str(error), f"the message of {type(error).__name__} names {text!r}: {error}")
        return error
    raise AssertionError(f"expected {wanted}, got the answer {answer!r}")


# Threads


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


# Claims

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
