"""Lists that grow are stored as what changed: a delta on the version before, and now and then a snapshot.

An element of the new value is *kept* if it is the same object, in the same place, as in the value
that was stored last, and no write of this superstep carried it: what a node returns may have been
changed in place. What is kept is not stored again. A snapshot is due when the deltas on the last one
would outweigh it (and MINIMUM bytes), so snapshots double: all of it stays within three times the
payload, and a reader fetches at most twice the value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import compress, count
from operator import is_not
from typing import Any, Final, NamedTuple

from perdure.checkpoint.base import BlobRow, DeltaBase, SerializerProtocol
from perdure.data import Overwrite
from perdure.errors import InvalidPayloadError, UnserializableValueError

MINIMUM: Final = 16 * 1024
"""Bytes of deltas that are never worth a snapshot."""

_IMMUTABLE: Final = frozenset({str, int, float, bool, type(None), bytes})


class Record(NamedTuple):
    """What of a list was stored last.

    Attributes:
        value: a copy of the list, holding the very objects that were stored.
    """

    base: DeltaBase
    value: list[Any]


def carried_by(writes: Iterable[tuple[str, Any]]) -> dict[str, set[int]]:
    """By channel, the identities of the objects that these writes carry and that could have been changed."""
    carried: dict[str, set[int]] = {}
    for channel, value in writes:
        value = value.value if type(value) is Overwrite else value
        elements = value if isinstance(value, list | tuple) else (value,)
        carried.setdefault(channel, set()).update(
            id(element) for element in elements if type(element) not in _IMMUTABLE
        )
    return carried


def encode_list(
    serde: SerializerProtocol,
    place: tuple[str, str, str],
    value: list[Any],
    record: Record | None,
    carried: set[int],
) -> tuple[BlobRow, Record]:
    """The row that stores `value` at `place` (ns, channel, version), and the record of it."""
    version = place[2]
    if record is not None:
        kept = _kept(record.value, value, carried)
        base = record.base
        payload = _encode_tail(serde, value, kept)
        deltas = base.delta_bytes + len(payload)
        if kept and deltas <= max(base.snapshot_bytes, MINIMUM):
            row = BlobRow(*place, payload, base.version, kept, base.snapshot)
            return row, Record(DeltaBase(version, base.snapshot, base.snapshot_bytes, deltas), value.copy())
    payload = serde.dumps(value)
    return BlobRow(*place, payload), Record(DeltaBase(version, version, len(payload), 0), value.copy())


def _kept(old: list[Any], new: list[Any], carried: set[int]) -> int:
    """How many leading elements of `new` need not be stored again."""
    kept = next(compress(count(), map(is_not, old, new)), min(len(old), len(new)))
    if carried.isdisjoint(map(id, new[:kept])):
        return kept
    return next((i for i in range(kept) if id(new[i]) in carried), kept)


def _encode_tail(serde: SerializerProtocol, value: list[Any], kept: int) -> bytes:
    try:
        return serde.dumps(value[kept:])
    except UnserializableValueError:
        serde.dumps(value)  # raises the same, with the place in the whole list
        raise


def rebuild(
    channel: str, version: str, rows: Mapping[str, BlobRow], decode: Callable[[bytes], Any]
) -> tuple[Any, DeltaBase | None]:
    """The value at `version`, from the rows of its channel by version; and what a delta may stand on.

    Raises InvalidPayloadError if a row that the value stands on is missing.
    """
    chain = [rows[version]]
    while (base := chain[-1].base) is not None:
        if base not in rows:
            raise InvalidPayloadError(
                f"State key {channel!r} at version {version} stands on version {base}, which is not stored. "
                "Rows of this thread were deleted by something other than the saver."
            )
        chain.append(rows[base])
    snapshot = chain.pop()
    value = decode(snapshot.payload)
    if type(value) is not list:
        return value, None
    for row in reversed(chain):
        value[row.kept :] = decode(row.payload)
    deltas = sum(len(row.payload) for row in chain)
    return value, DeltaBase(version, snapshot.version, len(snapshot.payload), deltas)
