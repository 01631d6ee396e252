"""Shelves: the rows of one namespace of a thread, as the in-process saver keeps them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

import orjson

from perdure.checkpoint.base import BlobRow, CheckpointRow, WriteRow

Writer = tuple[str, int]
"""The run that stored a checkpoint, and its epoch then."""


class Stored(NamedTuple):
    """A checkpoint row with its metadata encoded; `metadata` of the row itself is not read."""

    row: CheckpointRow
    metadata: bytes
    writer: Writer | None

    def opened(self) -> CheckpointRow:
        """Return the row with a copy of its metadata."""
        return self.row._replace(metadata=orjson.loads(self.metadata))


class Shelf:
    """The checkpoints, values and pending writes of one namespace of a thread.

    Readers may keep a shelf: rows are added to it, and never removed. A deletion makes a new shelf.

    Attributes:
        blobs: rows by channel and version.
        writes: by checkpoint, then by task and index.
        newest: the greatest checkpoint id; "" when there is none.
    """

    __slots__ = ("blobs", "checkpoints", "newest", "writes")

    def __init__(self) -> None:
        self.checkpoints: dict[str, Stored] = {}
        self.blobs: dict[str, dict[str, BlobRow]] = {}
        self.writes: dict[str, dict[tuple[str, int], WriteRow]] = {}
        self.newest = ""

    def add_checkpoint(self, stored: Stored) -> None:
        """Add a checkpoint, or replace the one with its id."""
        checkpoint_id = stored.row.checkpoint_id
        self.checkpoints[checkpoint_id] = stored
        if checkpoint_id > self.newest:
            self.newest = checkpoint_id

    def add_blob(self, row: BlobRow) -> None:
        self.blobs.setdefault(row.channel, {}).setdefault(row.version, row)

    def add_write(self, row: WriteRow) -> None:
        pending = self.writes.get(row.checkpoint_id)
        if pending is None:
            pending = self.writes[row.checkpoint_id] = {}
        if row.idx < 0:
            pending[row.task_id, row.idx] = row
        else:
            pending.setdefault((row.task_id, row.idx), row)

    def pending(self, checkpoint_id: str) -> list[WriteRow]:
        return list(self.writes.get(checkpoint_id, {}).values())

    def holds_checkpoint(self, row: CheckpointRow, writer: Writer) -> bool:
        """Return True if this run stored the checkpoint, under this epoch."""
        stored = self.checkpoints.get(row.checkpoint_id)
        return stored is not None and stored.writer == writer

    def holds_write(self, row: WriteRow) -> bool:
        """Return True if the write was stored, or another write has its place and would keep it."""
        held = self.writes.get(row.checkpoint_id, {}).get((row.task_id, row.idx))
        return held is not None and (row.idx >= 0 or held == row)

    def without(self, checkpoint_ids: Collection[str]) -> Shelf:
        """Return a shelf without these checkpoints, their pending writes, and values that only they had."""
        shelf = Shelf()
        for checkpoint_id, stored in self.checkpoints.items():
            if checkpoint_id not in checkpoint_ids:
                shelf.add_checkpoint(stored)
        for stored in shelf.checkpoints.values():
            for channel, version in orjson.loads(stored.row.versions).items():
                self._copy_chain(shelf, channel, version)
        shelf.writes = {
            checkpoint_id: dict(pending)
            for checkpoint_id, pending in self.writes.items()
            if checkpoint_id not in checkpoint_ids
        }
        return shelf

    def _copy_chain(self, shelf: Shelf, channel: str, version: str | None) -> None:
        """Copy a value, and those that it stands on."""
        rows = self.blobs.get(channel, {})
        while version is not None and version in rows:
            row = rows[version]
            shelf.add_blob(row)
            version = row.base

    def pruned(self) -> Shelf:
        """Return a shelf with the newest checkpoint alone, which no longer names a parent."""
        shelf = self.without((self.checkpoints.keys() | self.writes.keys()) - {self.newest})
        if newest := shelf.checkpoints.get(self.newest):
            shelf.add_checkpoint(newest._replace(row=newest.row._replace(parent_id=None)))
        return shelf

    def named_by(self, run_ids: Collection[str]) -> set[str]:
        """Return the ids of the checkpoints whose metadata names one of these runs."""
        return {
            checkpoint_id
            for checkpoint_id, stored in self.checkpoints.items()
            if orjson.loads(stored.metadata).get("run_id") in run_ids
        }

    def copy_from(self, other: Shelf) -> None:
        """Add the rows of `other` that this shelf does not have."""
        self._add_missing(other.checkpoints.values())
        for channel, rows in other.blobs.items():
            self.blobs[channel] = rows | self.blobs.get(channel, {})
        for checkpoint_id, pending in other.writes.items():
            self.writes[checkpoint_id] = pending | self.writes.get(checkpoint_id, {})

    def _add_missing(self, checkpoints: Iterable[Stored]) -> None:
        for stored in checkpoints:
            if stored.row.checkpoint_id not in self.checkpoints:
                self.add_checkpoint(stored._replace(writer=None))
