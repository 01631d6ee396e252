"""Rows to views, and views to rows, as every saver needs them: pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import orjson

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
from perdure.checkpoint.serde.json import exact_json
from perdure.constants import RESERVED_SLOTS
from perdure.errors import InvalidPayloadError, MissingThreadError, UnserializableValueError
from perdure.ids import version_checkpoint

_NUL: Final = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")

# Configs


class Address(NamedTuple):
    """The address of a checkpoint in a config; None for a part that the config does not name."""

    thread_id: str
    ns: str | None
    checkpoint_id: str | None


def address_of(config: Mapping[str, Any]) -> Address:
    """Return the address in a config. Raises MissingThreadError if it names no thread."""
    configurable = config.get("configurable") or {}
    thread_id = configurable.get("thread_id")
    if thread_id is None:
        raise MissingThreadError(
            'The config names no thread. Pass {"configurable": {"thread_id": "..."}}, with the same id for '
            "all calls on a thread."
        )
    return Address(str(thread_id), configurable.get("checkpoint_ns"), checkpoint_id_of(config))


def checkpoint_id_of(config: Mapping[str, Any]) -> str | None:
    """Return the id of the checkpoint that a config names, or None."""
    return (config.get("configurable") or {}).get("checkpoint_id") or None


def config_of(thread_id: str, ns: str, checkpoint_id: str) -> dict[str, Any]:
    """Return the config that addresses exactly this checkpoint."""
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}}


# Values and metadata


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


def encode_metadata(metadata: Mapping[str, Any], what: str = "Metadata") -> bytes:
    """Encode metadata as JSON text that a `jsonb` column gives back equal; errors call it `what`.

    Raises UnserializableValueError for values that JSON does not have, and for NUL, which `jsonb` cannot
    hold.
    """
    plain = metadata if type(metadata) is dict else dict(metadata)
    payload = _json_text(plain)
    if payload is not None:
        return payload
    culprits = "; ".join(
        f"{key!r} is {value!r:.100}" for key, value in plain.items() if _json_text({key: value}) is None
    )
    raise UnserializableValueError(
        f"{what} cannot be stored: {culprits}. It may hold str (without NUL and lone surrogates), int of "
        "64 bits, finite float, bool, None, and lists and dicts of them; exactly these types."
    )


def _json_text(value: Any) -> bytes | None:
    payload = exact_json(value)
    if payload is not None and b"\\u0000" in payload and _NUL.search(payload):
        return None
    return payload


def metadata_matches(metadata: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return True if metadata has every wanted key with an equal value, as JSON understands equality."""
    return all(key in metadata and _equal_json(metadata[key], value) for key, value in wanted.items())


def _equal_json(left: Any, right: Any) -> bool:
    """Compare like `==`, except that true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_equal_json(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_equal_json, left, right))
    return bool(left == right)


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


# Arguments


def require_ids(ids: Iterable[str], name: str) -> frozenset[str]:
    """Return ids as a set. Raises TypeError for one string, which is a sequence of letters, too."""
    if isinstance(ids, str):
        raise TypeError(f"{name} must be a sequence of ids, not the one string {ids!r}. Pass [{ids!r}].")
    return frozenset(ids)
