"""Reading checkpoints: one by its address, or many in pages. It needs no claim, and takes no lock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from perdure.checkpoint.base import CHECKPOINT_FORMAT, BlobRow, CheckpointRow, WriteRow
from perdure.checkpoint.metadata import encode_metadata
from perdure.errors import InvalidPayloadError
from perdure_checkpointers.postgres.connections.arrays import TextArray
from perdure_checkpointers.postgres.connections.database import Database
from perdure_checkpointers.postgres.queries.rows import HeadRow, PageRow, PendingRow

_FIRST_PAGE = 10
_LARGEST_PAGE = 100


Blobs = dict[str, dict[str, BlobRow]]


class StoredCheckpoint(NamedTuple):
    """A checkpoint with its values and writes, still encoded; `blobs` with the rows that they stand on."""

    thread_id: str
    row: CheckpointRow
    blobs: Blobs
    writes: list[WriteRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The conditions of a listing; None for one that is not made."""

    thread_id: str | None = None
    ns: str | None = None
    checkpoint_id: str | None = None
    before: str | None = None
    filter: Mapping[str, Any] | None = None


class CheckpointReader:
    """A reader of stored checkpoints, in the format that this release writes."""

    def __init__(self, database: Database, *, format: int) -> None:
        self._database = database
        self._queries = database.queries
        self._format = format

    def address(self, thread_id: str, ns: str, checkpoint_id: str | None) -> dict[str, Any]:
        """Return the parameters of a statement that reads one checkpoint."""
        return {"thread": thread_id, "ns": ns, "id": checkpoint_id, **self._formats()}

    def stored(self, thread_id: str, ns: str, head: HeadRow) -> StoredCheckpoint | None:
        """Return the checkpoint of a row, or None if there was no such checkpoint."""
        if head.checkpoint_id is None:
            return None
        row = _checkpoint(ns, head.checkpoint_id, head)
        blobs: Blobs = {}
        # Aggregates over no rows are null.
        for channel, version, payload, base, kept, snapshot in zip(
            head.channels or (),
            head.channel_versions or (),
            head.payloads or (),
            head.bases or (),
            head.kepts or (),
            head.snapshots or (),
            strict=True,
        ):
            blob = BlobRow(ns, channel, version, payload, base, kept, snapshot)
            blobs.setdefault(channel, {})[version] = blob
        return StoredCheckpoint(thread_id, row, blobs, _writes(row, head))

    async def head(self, thread_id: str, ns: str, checkpoint_id: str | None) -> StoredCheckpoint | None:
        """Read the addressed checkpoint, or the newest."""
        query = self._queries.get if checkpoint_id is None else self._queries.get_by_id
        rows = await self._database.fetch(query, self.address(thread_id, ns, checkpoint_id))
        return self.stored(thread_id, ns, rows[0]) if rows else None

    async def pages(self, selection: Selection, limit: int | None) -> AsyncIterator[list[StoredCheckpoint]]:
        """Yield the selected checkpoints, newest first, in pages that grow, so that the first cost little."""
        conditions, parameters = _conditions(selection)
        size, left = _FIRST_PAGE, limit
        while left is None or left > 0:
            size = size if left is None else min(size, left)
            rows = await self._page(conditions, {**parameters, "limit": size, **self._formats()})
            if rows:
                yield await self._with_values(rows)
            if len(rows) < size:
                return
            left = None if left is None else left - len(rows)
            size = min(size * 2, _LARGEST_PAGE)
            conditions = conditions if "after" in conditions else [*conditions, "after"]
            last = rows[-1]
            parameters |= {"last_thread": last.thread_id, "last_ns": last.ns, "last_id": last.checkpoint_id}

    async def _page(self, conditions: Sequence[str], parameters: Mapping[str, Any]) -> list[PageRow]:
        return await self._database.fetch(self._queries.page(*conditions), parameters)

    async def _with_values(self, rows: Sequence[PageRow]) -> list[StoredCheckpoint]:
        keys = {
            (row.thread_id, row.ns, channel, version): None
            for row in rows
            for channel, version in orjson.loads(row.versions).items()
        }
        blobs = await self._blobs(list(keys))
        page = []
        for row in rows:
            checkpoint = _checkpoint(row.ns, row.checkpoint_id or "", row)
            values = blobs.get((row.thread_id, row.ns), {})
            page.append(StoredCheckpoint(row.thread_id, checkpoint, values, _writes(checkpoint, row)))
        return page

    async def _blobs(self, keys: Sequence[tuple[str, ...]]) -> dict[tuple[str, str], Blobs]:
        """Return the values of a page by thread and namespace."""
        columns = zip(*keys, strict=True) if keys else ((), (), (), ())
        names = ("thread", "ns", "channel", "version")
        parameters = {name: TextArray(column) for name, column in zip(names, columns, strict=True)}
        rows = await self._database.fetch(self._queries.page_blobs, {**parameters, **self._formats()})
        found: dict[tuple[str, str], Blobs] = {}
        for row in rows:
            if not row.known:
                raise _unknown_format("A value of this history")
            blob = BlobRow(row.ns, row.channel, row.version, row.payload, row.base, row.kept, row.snapshot)
            versions = found.setdefault((row.thread_id, row.ns), {}).setdefault(row.channel, {})
            versions[row.version] = blob
        return found

    def _formats(self) -> dict[str, int]:
        return {"format": self._format, "checkpoint_format": CHECKPOINT_FORMAT}


def _checkpoint(ns: str, checkpoint_id: str, row: PendingRow) -> CheckpointRow:
    if not row.known:
        raise _unknown_format(f"Checkpoint {checkpoint_id}, or a value or pending write of it,")
    return CheckpointRow(ns, checkpoint_id, row.parent_id, row.ts, row.versions, row.seen, row.metadata)


def _writes(checkpoint: CheckpointRow, row: PendingRow) -> list[WriteRow]:
    # Aggregates over no rows are null.
    items = zip(
        row.task_ids or (),
        row.task_paths or (),
        row.places or (),
        row.write_channels or (),
        row.write_payloads or (),
        strict=True,
    )
    return [WriteRow(checkpoint.ns, checkpoint.checkpoint_id, *item) for item in items]


def _unknown_format(what: str) -> InvalidPayloadError:
    return InvalidPayloadError(
        f"{what} is stored in a format that this saver's serde does not read. Use the release, or the serde, "
        "that wrote it."
    )


def _conditions(selection: Selection) -> tuple[list[str], dict[str, Any]]:
    found: dict[str, tuple[str, Any]] = {
        "of_thread": ("thread", selection.thread_id),
        "of_namespace": ("ns", selection.ns),
        "addressed": ("id", selection.checkpoint_id),
        "older_than": ("before", selection.before),
        "matching": (
            "filter",
            encode_metadata(selection.filter).decode() if selection.filter else None,
        ),
    }
    chosen = {name: bound for name, bound in found.items() if bound[1] is not None}
    return list(chosen), dict(chosen.values())
