"""Many commits as the parameters of one statement. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg.types.numeric import Int8

from perdure.checkpoint.base import CHECKPOINT_FORMAT, CheckpointRow, Commit, Fence, RunEnd, WriteRow
from perdure_checkpointers.postgres.commits.documents import check_versions, encode_document
from perdure_checkpointers.postgres.connections.arrays import BytesArray, Int4Array, Int8Array, TextArray


@dataclass(frozen=True, slots=True)
class Encoded:
    """A commit with its metadata encoded: when it is handed over, so that a bad one never waits.

    Attributes:
        size: bytes of its payloads, and one for each row.
    """

    commit: Commit
    metadata: tuple[bytes, ...]
    size: int

    @classmethod
    def of(cls, commit: Commit) -> Encoded:
        """Encode a commit. Raises UnserializableValueError."""
        for row in commit.checkpoints:
            check_versions(row)
        metadata = tuple(encode_document(row.metadata) for row in commit.checkpoints)
        size = sum(len(row.payload) for row in commit.blobs) + sum(len(row.payload) for row in commit.writes)
        return cls(commit, metadata, size + len(commit.blobs) + len(commit.writes))


@dataclass(slots=True)
class _Thread:
    """The commits of a thread in a batch, as one. All of them carry one fence."""

    number: int
    fence: Fence | None
    last_id: str | None
    end: RunEnd | None

    def add(self, commit: Commit) -> None:
        """Merge a later commit of the thread."""
        self.last_id = max(self.last_id or "", commit.last_id or "") or None
        self.end = commit.end or self.end


class Batch:
    """Commits as parameters of a statement.

    Attributes:
        threads: the ids of its threads; the first has the number 1 in the batch.
    """

    __slots__ = ("_checkpoints", "_commits", "_format", "_threads", "_writes", "threads")

    def __init__(self, batch: Sequence[Encoded], *, format: int) -> None:
        self._format = format
        self._threads: dict[str, _Thread] = {}
        self._commits: list[tuple[int, Commit]] = []
        self._checkpoints: dict[tuple[Any, ...], tuple[int, CheckpointRow, bytes]] = {}
        self._writes: dict[tuple[Any, ...], tuple[int, WriteRow]] = {}
        self.threads: list[str] = []
        for item in batch:
            self._add(item)

    def _add(self, item: Encoded) -> None:
        commit = item.commit
        known = self._threads.get(commit.thread_id)
        if known is None:
            self.threads.append(commit.thread_id)
            n = len(self.threads)
            self._threads[commit.thread_id] = _Thread(n, commit.fence, commit.last_id, commit.end)
        else:
            known.add(commit)
            n = known.number
        self._commits.append((n, commit))
        for row, metadata in zip(commit.checkpoints, item.metadata, strict=True):
            self._checkpoints[n, row.ns, row.checkpoint_id] = n, row, metadata
        for write in commit.writes:
            # A statement cannot store two rows under one key, so the rule of WriteRow is applied here, too.
            key = n, write.ns, write.checkpoint_id, write.task_id, write.idx
            if write.idx < 0 or key not in self._writes:
                self._writes[key] = n, write

    def of_many(self) -> dict[str, Any]:
        """Return the parameters of a statement that stores commits of many threads."""
        threads = self._threads.values()
        return {
            "thread": TextArray(self.threads),
            "run": TextArray([each.fence.run_id if each.fence else None for each in threads]),
            "epoch": Int8Array([each.fence.epoch if each.fence else 0 for each in threads]),
            "last_id": TextArray([each.last_id for each in threads]),
            "status": TextArray([each.end.status if each.end else None for each in threads]),
            "error": TextArray.long_texts([each.end.error if each.end else None for each in threads]),
            "c_n": Int4Array([n for n, _, _ in self._checkpoints.values()]),
            "b_n": Int4Array([n for n, commit in self._commits for _ in commit.blobs]),
            "w_n": Int4Array([n for n, _ in self._writes.values()]),
            **self._rows(),
        }

    def of_one(self) -> dict[str, Any]:
        """Return the parameters of a statement that stores commits of a single thread."""
        ((thread_id, thread),) = self._threads.items()
        fence, end = thread.fence, thread.end
        return {
            "thread_id": thread_id,
            "run_id": fence.run_id if fence else None,
            "epoch": Int8(fence.epoch if fence else 0),
            "last_id": thread.last_id,
            "status": end.status if end else None,
            "error": end.error if end else None,
            **self._rows(),
        }

    def _rows(self) -> dict[str, Any]:
        checkpoints = list(self._checkpoints.values())
        writes = [row for _, row in self._writes.values()]
        return {
            "format": self._format,
            "checkpoint_format": CHECKPOINT_FORMAT,
            **_checkpoint_columns([row for _, row, _ in checkpoints]),
            "c_metadata": BytesArray([metadata for _, _, metadata in checkpoints]),
            **_blob_columns(self._commits),
            **_write_columns(writes),
        }


def _checkpoint_columns(rows: Sequence[CheckpointRow]) -> dict[str, Any]:
    return {
        "c_ns": TextArray([row.ns for row in rows]),
        "c_id": TextArray([row.checkpoint_id for row in rows]),
        "c_parent": TextArray([row.parent_id for row in rows]),
        "c_ts": TextArray([row.ts for row in rows]),
        "c_versions": BytesArray([row.versions for row in rows]),
        "c_seen": BytesArray([row.seen for row in rows]),
    }


def _blob_columns(commits: Sequence[tuple[int, Commit]]) -> dict[str, Any]:
    items = [(n, row) for n, commit in commits for row in commit.blobs]
    rows = [row for _, row in items]
    # A base that the batch itself brings need not be looked for among stored rows.
    brought = {(n, row.ns, row.channel, row.version) for n, row in items}
    stands_on = [None if (n, row.ns, row.channel, row.base) in brought else row.base for n, row in items]
    return {
        "b_ns": TextArray([row.ns for row in rows]),
        "b_channel": TextArray([row.channel for row in rows]),
        "b_version": TextArray([row.version for row in rows]),
        "b_base": TextArray([row.base for row in rows]),
        "b_snapshot": TextArray([row.snapshot for row in rows]),
        "b_kept": Int4Array([row.kept for row in rows]),
        "b_stands_on": TextArray(stands_on),
        "b_payload": BytesArray([row.payload for row in rows]),
    }


def _write_columns(rows: Sequence[WriteRow]) -> dict[str, Any]:
    return {
        "w_ns": TextArray([row.ns for row in rows]),
        "w_id": TextArray([row.checkpoint_id for row in rows]),
        "w_task": TextArray([row.task_id for row in rows]),
        "w_path": TextArray([row.task_path for row in rows]),
        "w_idx": Int4Array([row.idx for row in rows]),
        "w_channel": TextArray([row.channel for row in rows]),
        "w_payload": BytesArray([row.payload for row in rows]),
    }
