"""Rows that statements return, with a field for each column, in the order of the columns.

The rows of a checkpoint are dataclasses, because a claim's begin with them; a field stands for a column
there, too. The others are named tuples.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

# Connections


class ProofRow(NamedTuple):
    """The process that serves a connection, and the isolation of its transactions."""

    pid: int
    isolation: str
    settings: list[str] | None


class StoppedRow(NamedTuple):
    """The answer to a cancellation of another session's statement."""

    stopped: bool


# Commits


class AcceptedRow(NamedTuple):
    """The number of a thread in a batch, whose commits were stored."""

    n: int


class VerdictRow(NamedTuple):
    """The reason why a thread's commits were not stored: "stale", "broken" or "busy"."""

    n: int
    verdict: str


class RepetitionRow(NamedTuple):
    """The answer for a commit whose fence does not hold: True if it had been stored before."""

    stored: bool


# Checkpoints


@dataclass(slots=True)
class PendingRow:
    """A checkpoint with its pending writes, which are lists of equal length, or None if there are none.

    Attributes:
        checkpoint_id: None, as are all other columns, if there is no such checkpoint.
        known: False if a part of it is in a format that this release does not read.
    """

    checkpoint_id: str | None
    parent_id: str | None
    ts: str
    versions: bytes
    seen: bytes
    metadata: dict[str, Any]
    known: bool
    task_ids: list[str] | None
    task_paths: list[str] | None
    places: list[int] | None
    write_channels: list[str] | None
    write_payloads: list[bytes] | None


@dataclass(slots=True)
class HeadRow(PendingRow):
    """A checkpoint with its pending writes and its values, with what they stand on."""

    channels: list[str] | None
    channel_versions: list[str] | None
    payloads: list[bytes] | None
    bases: list[str | None] | None
    kepts: list[int] | None
    snapshots: list[str | None] | None


@dataclass(slots=True)
class PageRow(PendingRow):
    """A checkpoint of a listing; its values are fetched with those of the whole page."""

    thread_id: str
    ns: str


class PageBlobRow(NamedTuple):
    """A value of a page, or one that another stands on."""

    thread_id: str
    ns: str
    channel: str
    version: str
    payload: bytes
    base: str | None
    kept: int
    snapshot: str | None
    known: bool


# Claims


@dataclass(slots=True)
class GrantRow(HeadRow):
    """A claim, and the checkpoint that its run starts from.

    Attributes:
        epoch: None if the claim was not granted.
        head_is_current: False if a commit came between the statement's snapshot and its lock.
    """

    epoch: int | None
    last_id: str | None
    attempt: int
    head_is_current: bool


@dataclass(slots=True)
class FreeGrantRow(GrantRow):
    """A claim of a batch that was granted."""

    thread_id: str


@dataclass(slots=True)
class AnswerRow(GrantRow):
    """The answer to a claim that was sent alone, with the run that held the thread before."""

    run_id: str | None
    holder: str | None
    claimed_at: datetime | None
    live: bool | None


class HolderRow(NamedTuple):
    """The run that holds a thread, and since when; `live` while its lease lasts."""

    run_id: str | None
    holder: str | None
    claimed_at: datetime | None
    live: bool | None


class RenewedRow(NamedTuple):
    """The answer to a renewal: True if the claim holds, False if it is lost, None if its row was locked."""

    n: int
    holds: bool | None


class OrphanRow(NamedTuple):
    """A run whose lease ran out before it ended."""

    thread_id: str
    run_id: str
    epoch: int
    graph: str
    signature: str
    input: bytes
    config: dict[str, Any]
    durability: Any
    attempt: int
    started: bool


# Whole threads


class ThreadRow(NamedTuple):
    """The id of a thread."""

    thread_id: str


# The node cache


class CachedRow(NamedTuple):
    """A cached result, and the number of its key in the question."""

    n: int
    value: bytes


class ClearedRow(NamedTuple):
    """The number of entries that were found and removed."""

    found: int


class NoRow(NamedTuple):
    """The row of a statement that returns none."""
