"""Many commits as the parameters of one statement. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from perdure.checkpoint.base import CHECKPOINT_FORMAT, BlobRow, CheckpointRow, Commit, RunEnd, WriteRow
from perdure_checkpointers.postgres.arrays import BytesArray, Int4Array, Int8Array, TextArray
from perdure_checkpointers.postgres.documents import check_versions, encode_document


@dataclass(frozen=True, slots=True)
class Encoded:
    """A commit with its documents encoded; made when it is handed over, so that a bad one never waits."""

    commit: Commit
    metadata: tuple[bytes, ...]
    size: int

    @classmethod
    def of(cls, commit: Commit) -> Encoded:
        for row in commit.checkpoints:
            check_versions(row)
        metadata = tuple(encode_document(row.metadata) for row in commit.checkpoints)
        size = sum(len(row.payload) for row in commit.blobs) + sum(len(row.payload) for row in commit.writes)
        return cls(commit, metadata, size + len(commit.blobs) + len(commit.writes))


@dataclass(slots=True)
class _Threads:
    """What the batch says of each thread, by its number in the batch, from 1."""

    number: dict[str, int] = field(default_factory=dict)
    last_id: list[str | None] = field(default_factory=list)
    end: list[RunEnd | None] = field(default_factory=list)

    def add(self, commit: Commit) -> int:
        n = self.number.setdefault(commit.thread_id, len(self.number) + 1)
        if n > len(self.last_id):
            self.last_id.append(commit.last_id)
            self.end.append(commit.end)
        else:
            self.last_id[n - 1] = max(self.last_id[n - 1] or "", commit.last_id or "") or None
            self.end[n - 1] = commit.end or self.end[n - 1]
        return n


def parameters(batch: Sequence[Encoded], *, format: int) -> dict[str, Any]:
    """What the statement binds. The commits of one thread carry one fence."""
    threads = _Threads()
    numbers = [threads.add(item.commit) for item in batch]
    fences = {item.commit.thread_id: item.commit.fence for item in batch}
    checkpoints: dict[tuple[Any, ...], tuple[int, CheckpointRow, bytes]] = {}
    writes: dict[tuple[Any, ...], tuple[int, WriteRow]] = {}
    for n, item in zip(numbers, batch, strict=True):
        for row, metadata in zip(item.commit.checkpoints, item.metadata, strict=True):
            checkpoints[n, row.ns, row.checkpoint_id] = n, row, metadata
        _add_writes(writes, n, item.commit.writes)
    return {
        "format": format,
        "checkpoint_format": CHECKPOINT_FORMAT,
        "thread": TextArray(threads.number),
        "run": TextArray(fence.run_id if (fence := fences[thread]) else None for thread in threads.number),
        "epoch": Int8Array(fence.epoch if (fence := fences[thread]) else 0 for thread in threads.number),
        "last_id": TextArray(threads.last_id),
        "status": TextArray(end.status if end else None for end in threads.end),
        "error": TextArray(end.error if end else None for end in threads.end),
        **_checkpoint_columns(checkpoints.values()),
        **_blob_columns(numbers, batch),
        **_write_columns(writes.values()),
    }


def _add_writes(
    known: dict[tuple[Any, ...], tuple[int, WriteRow]], n: int, writes: Iterable[WriteRow]
) -> None:
    for row in writes:
        # One statement cannot meet a key twice, so the rule of WriteRow is applied here as well.
        key = n, row.ns, row.checkpoint_id, row.task_id, row.idx
        if row.idx < 0 or key not in known:
            known[key] = n, row


def _checkpoint_columns(rows: Iterable[tuple[int, CheckpointRow, bytes]]) -> dict[str, Any]:
    items = list(rows)
    return {
        "c_n": Int4Array(n for n, _, _ in items),
        "c_ns": TextArray(row.ns for _, row, _ in items),
        "c_id": TextArray(row.checkpoint_id for _, row, _ in items),
        "c_parent": TextArray(row.parent_id for _, row, _ in items),
        "c_ts": TextArray(row.ts for _, row, _ in items),
        "c_metadata": BytesArray(metadata for _, _, metadata in items),
        "c_versions": BytesArray(row.versions for _, row, _ in items),
        "c_seen": BytesArray(row.seen for _, row, _ in items),
    }


def _blob_columns(numbers: Sequence[int], batch: Sequence[Encoded]) -> dict[str, Any]:
    items = [(n, row) for n, item in zip(numbers, batch, strict=True) for row in item.commit.blobs]
    # What the batch itself brings need not be looked for among what is stored.
    brought = {(n, row.ns, row.channel, row.version) for n, row in items}
    return {
        "b_n": Int4Array(n for n, _ in items),
        "b_ns": TextArray(row.ns for _, row in items),
        "b_channel": TextArray(row.channel for _, row in items),
        "b_version": TextArray(row.version for _, row in items),
        "b_base": TextArray(row.base for _, row in items),
        "b_snapshot": TextArray(row.snapshot for _, row in items),
        "b_kept": Int4Array(row.kept for _, row in items),
        "b_stands_on": TextArray(row.base if (n, *_base(row)) not in brought else None for n, row in items),
        "b_payload": BytesArray(row.payload for _, row in items),
    }


def _base(row: BlobRow) -> tuple[str, str, str | None]:
    return row.ns, row.channel, row.base


def _write_columns(rows: Iterable[tuple[int, WriteRow]]) -> dict[str, Any]:
    items = list(rows)
    return {
        "w_n": Int4Array(n for n, _ in items),
        "w_ns": TextArray(row.ns for _, row in items),
        "w_id": TextArray(row.checkpoint_id for _, row in items),
        "w_task": TextArray(row.task_id for _, row in items),
        "w_path": TextArray(row.task_path for _, row in items),
        "w_idx": Int4Array(row.idx for _, row in items),
        "w_channel": TextArray(row.channel for _, row in items),
        "w_payload": BytesArray(row.payload for _, row in items),
    }
