"""Deltas: lists stored as changes to the version before, with a snapshot now and then.

The elements at the beginning of the last stored list that are *kept* are not stored again. There are two
ways to find them:

- If the reducer only appends (`operator.add`), an element is kept if it is the same object in the same
  place, and no write of this superstep carried it: a node may have changed in place what it returns. This
  costs next to nothing.
- Any other reducer may change elements that no write carried, as one does that merges messages by id. So
  every element is encoded, and those with equal bytes are kept.

A snapshot is stored when the deltas on the last one would outweigh it (and MINIMUM bytes). So snapshots
double in size, the whole chain stays within three times the payload, and a reader fetches at most twice
the value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import compress, count
from operator import is_not, ne
from typing import Any, Final, NamedTuple

from perdure.channels.binop import unwrap_overwrite
from perdure.checkpoint.base import BlobRow, DeltaBase, SerializerProtocol
from perdure.constants import MISSING
from perdure.errors import InvalidPayloadError, UnserializableValueError

MINIMUM: Final = 16 * 1024
"""The bytes of deltas up to which no snapshot is stored."""

_IMMUTABLE: Final = frozenset({str, int, float, bool, type(None), bytes})


class Record(NamedTuple):
    """A list as it was stored last.

    Attributes:
        marks: its elements as they are compared: the objects themselves, or their encodings.
    """

    base: DeltaBase
    marks: list[Any]


def carried_by(writes: Iterable[tuple[str, Any]], keys: frozenset[str]) -> dict[str, set[int]]:
    """Return, by key, the ids of the mutable objects that these writes carry."""
    carried: dict[str, set[int]] = {}
    for key, value in writes:
        if key in keys:
            replacement = unwrap_overwrite(value)
            written = value if replacement is MISSING else replacement
            elements = written if isinstance(written, list) else (written,)
            carried.setdefault(key, set()).update(
                id(element) for element in elements if type(element) not in _IMMUTABLE
            )
    return carried


def marks_of(serde: SerializerProtocol, value: list[Any], *, by_identity: bool) -> list[Any]:
    """Return the elements of a list as they are compared with those of the next version."""
    return value.copy() if by_identity else [serde.dumps(element) for element in value]


def encode_list(
    serde: SerializerProtocol,
    place: tuple[str, str, str],
    value: list[Any],
    record: Record | None,
    carried: set[int] | None,
) -> tuple[BlobRow, Record]:
    """Return the row that stores `value` at `place` (ns, channel, version), and the record of it.

    Args:
        carried: the ids of objects that may have changed; None to compare encodings instead of objects.
    """
    version = place[2]
    try:
        marks = marks_of(serde, value, by_identity=carried is not None)
        kept = 0 if record is None else _kept(record.marks, marks, carried)
        if record is not None and kept:
            base = record.base
            payload = serde.dumps(value[kept:])
            deltas = base.delta_bytes + len(payload)
            if deltas <= max(base.snapshot_bytes, MINIMUM):
                row = BlobRow(*place, payload, base.version, kept, base.snapshot)
                return row, Record(DeltaBase(version, base.snapshot, base.snapshot_bytes, deltas), marks)
    except UnserializableValueError:
        serde.dumps(value)  # raises the same, with the place in the whole list
        raise
    payload = serde.dumps(value)
    return BlobRow(*place, payload), Record(DeltaBase(version, version, len(payload), 0), marks)


def _kept(old: list[Any], new: list[Any], carried: set[int] | None) -> int:
    """Return the number of leading elements of `new` that need not be stored again."""
    differs = ne if carried is None else is_not
    kept = next(compress(count(), map(differs, old, new)), min(len(old), len(new)))
    if carried is None or carried.isdisjoint(map(id, new[:kept])):
        return kept
    return next((i for i in range(kept) if id(new[i]) in carried), kept)


def rebuild(
    channel: str, version: str, rows: Mapping[str, BlobRow], decode: Callable[[bytes], Any]
) -> tuple[Any, DeltaBase | None]:
    """Return the value at `version`, and the base of a next delta, from the channel's rows by version.

    Raises InvalidPayloadError if a row that the value stands on is missing.
    """
    chain = [rows[version]]
    while (base := chain[-1].base) is not None:
        if base not in rows:
            raise InvalidPayloadError(
                f"State key {channel!r} at version {version} stands on version {base}, which is not stored. "
                "Rows of this thread were deleted by something other than the saver: restore them, or use "
                "another thread."
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
