"""The contract of savers, which store threads.

It has two layers. *Rows* (`Commit` and its contents) are what the engine hands over: everything that one
or several supersteps store, already encoded, in one call. *Views* (`Checkpoint`, `CheckpointTuple`) are
what readers get back, decoded.

A saver implements `BaseCheckpointSaver`. A saver that can also keep two runs of a thread apart implements
`LeasedSaver`; without it, runs are not fenced and recovery is refused.
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

    `channel_values` holds the channels that have a value, `updated_channels` the names of those that the
    superstep before this checkpoint changed, sorted.
    """

    v: int
    id: str
    ts: str
    channel_values: dict[str, Any]
    channel_versions: dict[str, str]
    versions_seen: dict[str, dict[str, str]]
    updated_channels: list[str] | None


class CheckpointMetadata(TypedDict, total=False):
    """The origin of a checkpoint. Savers keep unknown keys too, and `alist` filters by all of them."""

    source: Literal["input", "loop", "update", "fork"]
    step: int
    parents: dict[str, str]
    run_id: str


PendingWrite = tuple[str, str, Any]
"""`(task_id, channel, value)`"""


class DeltaBase(NamedTuple):
    """The stored version of a list on which a delta may stand, and the bytes up to it."""

    version: str
    snapshot: str
    snapshot_bytes: int
    delta_bytes: int


class CheckpointTuple(NamedTuple):
    """A checkpoint with its metadata and pending writes.

    Pending writes are ordered by `(task_path, task_id, idx)`. `delta_bases` holds, by channel, the versions
    on which the next deltas may stand; a saver that stores no deltas leaves it out.
    """

    config: dict[str, Any]
    checkpoint: Checkpoint
    metadata: CheckpointMetadata
    parent_config: dict[str, Any] | None = None
    pending_writes: list[PendingWrite] | None = None
    delta_bases: Mapping[str, DeltaBase] = MappingProxyType({})


# Rows


class CheckpointRow(NamedTuple):
    """A checkpoint as stored. `versions` and `seen` are JSON; a channel without a BlobRow has no value."""

    ns: str
    checkpoint_id: str
    parent_id: str | None
    ts: str
    versions: bytes
    seen: bytes
    metadata: Mapping[str, Any]


class BlobRow(NamedTuple):
    """A channel's value at one version, stored once for all checkpoints that refer to it.

    It is a snapshot, the whole value; or, for lists, a delta: the first `kept` elements of the value at
    version `base`, followed by those in the payload. Versions grow along such a chain, so the rows from
    `snapshot`, at its bottom, to `version` hold all of it (see `checkpoint.delta`).
    """

    ns: str
    channel: str
    version: str
    payload: bytes
    base: str | None = None
    kept: int = 0
    snapshot: str | None = None


class WriteRow(NamedTuple):
    """A write of a task, pending on the checkpoint that the task ran from.

    The first row that is stored for `(task_id, idx)` stays, but one with a negative idx (RESERVED_SLOTS) is
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
    """The proof of a claim: a commit that carries it is accepted only while its run holds the thread."""

    thread_id: str
    run_id: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """The end of a run. `error` is text for people."""

    status: RunStatus
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Rows that are stored together or not at all.

    Attributes:
        fence: the proof that the run holds the thread; None for a saver without leases.
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
    """The request of a run for its thread.

    Attributes:
        input: the run's input, encoded, so that a successor can start from it.
        config: the options that a successor needs beside the input; JSON values only.
        ns, checkpoint_id: the checkpoint to read in the same round trip; an id of None is the newest.
        successor_of: None for a new run; for a recovery the epoch of the orphan. The claim then succeeds
            only if the run still has that epoch and its lease has run out.
        nonce: a token that tells a claim which is sent again from another one with the same run id.
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
        head: the checkpoint that was asked for, or None if there is no such checkpoint.
        last_id: the greatest checkpoint id ever drawn on this thread.
        attempt: 1 for a new run, and one more with each recovery.
    """

    fence: Fence
    head: CheckpointTuple | None = None
    last_id: str | None = None
    attempt: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """A run whose lease ran out before it ended.

    Attributes:
        started: True if the run has stored a checkpoint of its own; if not, it starts from `input`.
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
    """A serializer: values come back equal and of the same type, or are refused when they are written."""

    format: int
    """The number that is stored beside each payload, by which a later reader knows its format."""

    @abstractmethod
    def dumps(self, value: Any) -> bytes:
        """Encode a value. Raises UnserializableValueError, naming the place in it, its type, the remedy."""

    @abstractmethod
    def loads(self, payload: bytes) -> Any:
        """Decode a payload; import and call nothing because it says so. Raises InvalidPayloadError."""


class BaseCheckpointSaver(ABC):
    """A store of checkpoints, channel values and pending writes.

    A config addresses a checkpoint by its `configurable`: `thread_id`, `checkpoint_ns` (default ""),
    `checkpoint_id` (default: the newest).
    """

    serde: SerializerProtocol

    home: Any = None
    """The event loop on which all calls of the saver are made; None if any will do."""

    stores_deltas: bool = False
    """True if `acommit` takes BlobRows that are deltas, and readers get `delta_bases`."""

    @abstractmethod
    async def acommit(self, commit: Commit) -> None:
        """Store a commit. It may be repeated after a lost connection.

        Raises StaleRunError if the fence no longer holds, SaverUnavailableError or SaverTimeoutError if it is
        not known whether the commit was stored.
        """

    @abstractmethod
    async def aget_tuple(self, config: Mapping[str, Any]) -> CheckpointTuple | None:
        """Read the addressed checkpoint; return None if there is no such checkpoint."""

    @abstractmethod
    def alist(
        self,
        config: Mapping[str, Any] | None,
        *,
        filter: Mapping[str, Any] | None = None,
        before: Mapping[str, Any] | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield checkpoints, newest first.

        Args:
            config: None for those of all threads; without `checkpoint_ns`, those of all namespaces.
            filter: metadata that must be equal, key by key.
            before: a config; only checkpoints with smaller ids than its checkpoint's are listed.
            limit: how many to list at most.
        """

    @abstractmethod
    async def aput(
        self,
        config: Mapping[str, Any],
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: Mapping[str, str],
    ) -> dict[str, Any]:
        """Store a decoded checkpoint, whose parent is the config's, and return its config.

        Only the values of channels in `new_versions` are stored; the others are found by their versions.
        """

    @abstractmethod
    async def aput_writes(
        self,
        config: Mapping[str, Any],
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store decoded writes of a task, pending on the config's checkpoint (see WriteRow)."""

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
        """Delete all but the newest checkpoint of every namespace of each thread, or everything."""


class LeasedSaver(BaseCheckpointSaver):
    """A saver that keeps two live runs of a thread apart."""

    lease_seconds: float = 30.0
    """The duration of a claim that is not renewed, by the store's clock."""

    renew_seconds: float = 10.0
    """The time between renewals."""

    stop_seconds: float = 20.0
    """The time without renewal after which a run stops by itself, by a monotonic clock."""

    @abstractmethod
    async def aclaim(self, request: ClaimRequest) -> Claim:
        """Record the run, take its thread, and read the head, in one round trip.

        A request that is repeated while its run holds the thread is answered with the same epoch. Raises
        ThreadBusyError, naming the run that holds the thread and the time since when.
        """

    @abstractmethod
    async def arenew(self, fence: Fence) -> None:
        """Let the claim last `lease_seconds` from now. Raises StaleRunError if it is lost.

        All live claims that were made through this saver may be renewed with it; a call that comes soon after
        another uses the answer of that.
        """

    @abstractmethod
    async def arelease(self, fence: Fence, end: RunEnd) -> None:
        """End the run and release the thread. If the claim is lost, do nothing."""

    @abstractmethod
    def forget(self, fence: Fence) -> None:
        """Keep the claim no longer in this process. If it was not released, it runs out by itself."""

    @abstractmethod
    async def aorphans(
        self, *, graph: str | None = None, thread_id: str | None = None, limit: int = 100
    ) -> list[Orphan]:
        """List the runs whose lease has run out, oldest first; of one graph, of one thread."""
