"""Rows to views, and views to rows, as every saver needs them: pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import orjson

from perdure.checkpoint.addresses import address_of, config_of
from perdure.checkpoint.base import (
    CHECKPOINT_FORMAT,
    BlobRow,
    Checkpoint,
    CheckpointMetadata,
    CheckpointRow,
    CheckpointTuple,
    Commit,
    DeltaBase,
    SerializerProtocol,
    WriteRow,
)
from perdure.checkpoint.delta import rebuild
from perdure.constants import RESERVED_SLOTS
from perdure.errors import InvalidPayloadError, MissingThreadError, UnserializableValueError
from perdure.ids import version_checkpoint

# Values


def encode_value(serde: SerializerProtocol, key: str, value: Any) -> bytes:
    """Encode a channel's value. Raises UnserializableValueError, naming the key."""
    try:
        return serde.dumps(value)
    except UnserializableValueError as error:
        raise UnserializableValueError(f"State key {key!r}: {error}") from error


def decode_value(serde: SerializerProtocol, key: str, payload: bytes) -> Any:
    """Decode a channel's value. Raises InvalidPayloadError, naming the key."""
    try:
        return serde.loads(payload)
    except InvalidPayloadError as error:
        raise InvalidPayloadError(f"State key {key!r}: {error}") from error


# Writing


def commit_of_checkpoint(
    serde: SerializerProtocol,
    config: Mapping[str, Any],
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    new_versions: Mapping[str, str],
) -> Commit:
    """Return the commit that `aput` makes. Versions may be any strings."""
    address = address_of(config)
    ns, values = address.ns or "", checkpoint["channel_values"]
    row = CheckpointRow(
        ns=ns,
        checkpoint_id=checkpoint["id"],
        parent_id=address.checkpoint_id,
        ts=checkpoint["ts"],
        versions=orjson.dumps(_text_versions(checkpoint["channel_versions"])),
        seen=orjson.dumps({node: _text_versions(seen) for node, seen in checkpoint["versions_seen"].items()}),
        metadata=metadata,
    )
    blobs = [
        BlobRow(ns, channel, version, encode_value(serde, channel, values[channel]))
        for channel, version in new_versions.items()
        if channel in values
    ]
    return Commit(thread_id=address.thread_id, last_id=row.checkpoint_id, checkpoints=(row,), blobs=blobs)


def _text_versions(versions: Mapping[str, str]) -> dict[str, str]:
    for channel, version in versions.items():
        if not isinstance(version, str):
            raise UnserializableValueError(
                f"Channel {channel!r} has version {version!r} of type {type(version).__name__}. Versions "
                "must be strings that grow, such as those of perdure.ids.make_version."
            )
    return dict(versions)


def commit_of_writes(
    serde: SerializerProtocol,
    config: Mapping[str, Any],
    writes: Sequence[tuple[str, Any]],
    task_id: str,
    task_path: str = "",
) -> Commit:
    """Return the commit that `aput_writes` makes.

    A control write gets its reserved slot, any other write its place in the list.
    """
    address = address_of(config)
    if address.checkpoint_id is None:
        raise MissingThreadError(
            "The config names no checkpoint for the writes to be pending on. Pass the config that aput "
            'returned: {"configurable": {"thread_id": ..., "checkpoint_ns": ..., "checkpoint_id": ...}}.'
        )
    place = (address.ns or "", address.checkpoint_id, task_id, task_path)
    rows = [
        WriteRow(*place, RESERVED_SLOTS.get(channel, index), channel, encode_value(serde, channel, value))
        for index, (channel, value) in enumerate(writes)
    ]
    return Commit(thread_id=address.thread_id, writes=settled_writes(rows))


def settled_writes(writes: Iterable[WriteRow]) -> list[WriteRow]:
    """Return the writes that remain if these are stored in order: one for each place (see WriteRow)."""
    settled: dict[tuple[str, str, str, int], WriteRow] = {}
    for row in writes:
        place = (row.ns, row.checkpoint_id, row.task_id, row.idx)
        if row.idx < 0:
            settled[place] = row
        else:
            settled.setdefault(place, row)
    return list(settled.values())


# Reading


def build_tuple(
    serde: SerializerProtocol,
    thread_id: str,
    row: CheckpointRow,
    blobs: Mapping[str, Mapping[str, BlobRow]],
    writes: Iterable[WriteRow],
) -> CheckpointTuple:
    """Build the view of a checkpoint.

    Args:
        blobs: rows of its namespace by channel and version, with all that it refers to, or more.
        writes: rows that are pending on it, in any order.
    """
    versions: dict[str, str] = orjson.loads(row.versions)
    values: dict[str, Any] = {}
    bases: dict[str, DeltaBase] = {}
    for channel, version in versions.items():
        rows = blobs.get(channel)
        if rows is not None and version in rows:
            value, base = rebuild(channel, version, rows, partial(decode_value, serde, channel))
            values[channel] = value
            if base is not None:
                bases[channel] = base
    checkpoint = Checkpoint(
        v=CHECKPOINT_FORMAT,
        id=row.checkpoint_id,
        ts=row.ts,
        channel_values=values,
        channel_versions=versions,
        versions_seen=orjson.loads(row.seen),
        updated_channels=sorted(
            channel for channel in values if version_checkpoint(versions[channel]) == row.checkpoint_id
        ),
    )
    return CheckpointTuple(
        config=config_of(thread_id, row.ns, row.checkpoint_id),
        checkpoint=checkpoint,
        metadata=dict(row.metadata),  # type: ignore[arg-type]  # a TypedDict with unknown keys
        parent_config=config_of(thread_id, row.ns, row.parent_id) if row.parent_id else None,
        pending_writes=[
            (write.task_id, write.channel, decode_value(serde, write.channel, write.payload))
            for write in sorted(writes, key=_write_order)
        ],
        delta_bases=bases,
    )


def _write_order(write: WriteRow) -> tuple[str, str, int]:
    return write.task_path, write.task_id, write.idx
