"""The saver contract: what a place that keeps threads must be able to do.

Two layers. The *rows* (`Commit` and what it holds) are what the engine hands over: everything one
or several supersteps persist, already encoded, in one call. The *views* (`Checkpoint`,
`CheckpointTuple`) are what readers get back, decoded.

A saver implements `BaseCheckpointSaver`. One that can also keep two runs of a thread apart
implements `LeasedSaver`; without it, runs are not fenced and recovery is refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from secrets import token_hex
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypedDict

from perdure.data import Durability, RunStatus

CHECKPOINT_FORMAT = 1
"""The number in every checkpoint's `v`. Old numbers are read for ever."""


# Views


class Checkpoint(TypedDict):
    """A thread's state between two supersteps, decoded.

    `channel_values` holds the channels that have a value; `updated_channels` those that the
    superstep behind this checkpoint changed, sorted.
    """

    v: int
    id: str
    ts: str
    channel_values: dict[str, Any]
    channel_versions: dict[str, str]
    versions_seen: dict[str, dict[str, str]]
    updated_channels: list[str] | None


class CheckpointMetadata(TypedDict, total=False):
    """How a checkpoint came about. Savers keep unknown keys too, and `alist` filters on all of them."""

    source: Literal["input", "loop", "update", "fork"]
    step: int
    parents: dict[str, str]
    run_id: str


PendingWrite = tuple[str, str, Any]
"""`(task_id, channel, value)`"""


class DeltaBase(NamedTuple):
    """The stored version of a list that a delta may stand on, and the bytes up to it."""

    version: str
    snapshot: str
    snapshot_bytes: int
    delta_bytes: int


class CheckpointTuple(NamedTuple):
    """A checkpoint with what belongs to it.

    Pending writes are ordered by `(task_path, task_id, idx)`. `delta_bases` says, by channel, what
    the next deltas may stand on; a saver that stores no deltas leaves it out.
    """

    config: dict[str, Any]
    checkpoint: Checkpoint
    metadata: CheckpointMetadata
    parent_config: dict[str, Any] | None = None
    pending_writes: list[PendingWrite] | None = None
    delta_bases: Mapping[str, DeltaBase] = MappingProxyType({})


# Rows


class CheckpointRow(NamedTuple):
    """A checkpoint as stored. `versions` and `seen` are JSON; a channel without a row has no value."""

    ns: str
    checkpoint_id: str
    parent_id: str | None
    ts: str
    versions: bytes
    seen: bytes
    metadata: Mapping[str, Any]


class BlobRow(NamedTuple):
    """A channel's value at the version at which it took it; stored once, whoever refers to it.

    The whole value, a snapshot; or for lists a delta: the first `kept` elements of the value at
    version `base`, and after them those in the payload. Versions grow along such a chain, so the
    rows from `snapshot`, on which it stands, to `version` hold all of it (see `checkpoint.delta`).
    """

    ns: str
    channel: str
    version: str
    payload: bytes
    base: str | None = None
    kept: int = 0
    snapshot: str | None = None


class WriteRow(NamedTuple):
    """One write of a task, pending on the checkpoint that the task ran from.

    The first row stored for `(task_id, idx)` stays, except that a negative idx (RESERVED_SLOTS) is
    overwritten.
    """

    ns: str
    checkpoint_id: str
    task_id: str
    task_path: str
    idx: int
    channel: str
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """Proof of a claim: with it, a commit is accepted only while the run still owns the thread."""

    thread_id: str
    run_id: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """How a run ended. `error` is text for people."""

    status: RunStatus
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What is made durable together or not at all.

    Attributes:
        fence: None for a saver without leases.
        last_id: the greatest checkpoint id that the run has drawn.
        end: given with the last commit of a run; it also releases the thread.
    """

    thread_id: str
    fence: Fence | None = None
    last_id: str | None = None
    checkpoints: Sequence[CheckpointRow] = ()
    blobs: Sequence[BlobRow] = ()
    writes: Sequence[WriteRow] = ()
    end: RunEnd | None = None


# Claims


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRequest:
    """A run asks for its thread.

    Attributes:
        input: the run's input, encoded, so that a successor can start from it.
        config: what a successor needs beside the input; JSON values only.
        ns, checkpoint_id: which checkpoint to read in the same round trip; None is the newest.
        successor_of: None for a new run. For a recovery: the epoch of the orphan. The claim then
            succeeds only if the run still has that epoch and its lease has run out.
        nonce: tells a claim that is sent again from another one with the same run id.
    """

    thread_id: str
    run_id: str
    graph: str
    signature: str
    input: bytes
    config: Mapping[str, Any] = field(default_factory=dict)
    durability: Durability = "async"
    ns: str = ""
    checkpoint_id: str | None = None
    successor_of: int | None = None
    nonce: str = field(default_factory=partial(token_hex, 8))


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A granted claim.

    Attributes:
        head: the checkpoint that was asked for, or None if there is no such.
        last_id: the greatest checkpoint id ever drawn on this thread.
        attempt: 1 for a new run, one more with each recovery.
    """

    fence: Fence
    head: CheckpointTuple | None = None
    last_id: str | None = None
    attempt: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """A run whose lease ran out before it ended.

    Attributes:
        started: whether the run has stored a checkpoint of its own; if not, it starts from `input`.
    """

    thread_id: str
    run_id: str
    epoch: int
    graph: str
    signature: str
    input: bytes
    config: Mapping[str, Any]
    durability: Durability
    attempt: int
    started: bool


# The contract


class SerializerProtocol(ABC):
    """Turns values into bytes and back: equal and of the same type, or refused when written."""

    format: int
    """Stored beside each payload; tells a later reader how to read it."""

    @abstractmethod
    def dumps(self, value: Any) -> bytes:
        """Encode. Raises UnserializableValueError, naming the place in the value, its type, the remedy."""

    @abstractmethod
    def loads(self, payload: bytes) -> Any:
        """Decode. Raises InvalidPayloadError. Imports and calls nothing because a payload says so."""


class BaseCheckpointSaver(ABC):
    """Keeps checkpoints, channel values and pending writes of threads.

    Configs address a checkpoint by `configurable`: `thread_id`, `checkpoint_ns` (default ""),
    `checkpoint_id` (default: the newest).
    """

    serde: SerializerProtocol

    home: Any = None
    """The event loop that the saver lives on, where calls that come from elsewhere are made; None: any."""

    stores_deltas: bool = False
    """Whether `acommit` takes BlobRows that are deltas, and readers get `delta_bases`."""

    @abstractmethod
    async def acommit(self, commit: Commit) -> None:
        """Make a commit durable.

        Safe to repeat after a lost connection. Raises StaleRunError if the fence no longer holds,
        SaverUnavailableError or SaverTimeoutError if it cannot be known to have been stored.
        """

    @abstractmethod
    async def aget_tuple(self, config: Mapping[str, Any]) -> CheckpointTuple | None:
        """The addressed checkpoint; None if there is no such."""

    @abstractmethod
    def alist(
        self,
        config: Mapping[str, Any] | None,
        *,
        filter: Mapping[str, Any] | None = None,
        before: Mapping[str, Any] | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Checkpoints, newest first.

        Args:
            config: None lists all threads; without `checkpoint_ns` all namespaces of the thread.
            filter: metadata that must be equal, key by key.
            before: only checkpoints with an id smaller than this config's.
            limit: at most so many.
        """

    @abstractmethod
    async def aput(
        self,
        config: Mapping[str, Any],
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: Mapping[str, str],
    ) -> dict[str, Any]:
        """Store one decoded checkpoint, its parent being the config's; returns the config of it.

        Only the values of channels in `new_versions` are stored; the others are found by version.
        """

    @abstractmethod
    async def aput_writes(
        self,
        config: Mapping[str, Any],
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store decoded writes of one task, pending on the config's checkpoint (see WriteRow)."""

    @abstractmethod
    async def adelete_thread(self, thread_id: str) -> None:
        """Delete everything of a thread, in all namespaces."""

    @abstractmethod
    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints whose metadata names one of these runs, with their writes."""

    @abstractmethod
    async def acopy_thread(self, source: str, target: str) -> None:
        """Copy a thread's checkpoints, values and writes; a source without any copies nothing."""

    @abstractmethod
    async def aprune(
        self, thread_ids: Sequence[str], *, strategy: Literal["keep_latest", "delete"] = "keep_latest"
    ) -> None:
        """Keep of each thread only the newest checkpoint of every namespace, or nothing at all."""


class LeasedSaver(BaseCheckpointSaver):
    """A saver that keeps two live runs of a thread apart."""

    lease_seconds: float = 30.0
    """How long a claim lasts without renewal, by the store's clock."""

    renew_seconds: float = 10.0
    """How often it is renewed."""

    stop_seconds: float = 20.0
    """A run that could not be renewed for this long stops by itself, by a monotonic clock."""

    @abstractmethod
    async def aclaim(self, request: ClaimRequest) -> Claim:
        """Record the run and take its thread, reading the head in the same round trip.

        The same request, repeated while its run holds the thread, is answered with the same epoch.
        Raises ThreadBusyError, saying which run holds the thread and since when.
        """

    @abstractmethod
    async def arenew(self, fence: Fence) -> None:
        """Make the claim last `lease_seconds` from now. Raises StaleRunError if it is lost.

        Renews every live claim made through this saver in the same statement; a call that comes
        soon after another's answer uses that answer.
        """

    @abstractmethod
    async def arelease(self, fence: Fence, end: RunEnd) -> None:
        """End the run and give the thread back. A claim that is lost already is left alone."""

    @abstractmethod
    def forget(self, fence: Fence) -> None:
        """This process no longer keeps the claim: if it was not released, it runs out by itself."""

    @abstractmethod
    async def aorphans(
        self, *, graph: str | None = None, thread_id: str | None = None, limit: int = 100
    ) -> list[Orphan]:
        """Runs whose lease has run out, oldest first; of one graph, of one thread."""
