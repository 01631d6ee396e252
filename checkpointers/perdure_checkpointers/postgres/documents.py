"""What the server reads itself, as JSON: refused where it would be altered or could not be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import copysign
from typing import Any

import orjson

from perdure.checkpoint.base import CheckpointRow
from perdure.checkpoint.rows import encode_metadata
from perdure.errors import UnserializableValueError

_WHOLE_FLOAT_LIMIT = 1e16
"""From here on JSON text has an exponent, which `jsonb` writes out: the float would come back as an int."""


_NO_FLOATS = frozenset({str, int, bool, type(None)})


def encode_document(metadata: Mapping[str, Any]) -> bytes:
    """Metadata as text of which a `jsonb` column gives back equal values of the same types."""
    encoded = encode_metadata(metadata)
    for number in _floats([value for value in metadata.values() if type(value) not in _NO_FLOATS]):
        if (number.is_integer() and abs(number) >= _WHOLE_FLOAT_LIMIT) or (
            not number and copysign(1, number) < 0
        ):
            raise UnserializableValueError(
                f"Metadata cannot be stored: Postgres would alter the float {number!r}. Store it as text, or"
                " put it into the state."
            )
    return encoded


def _floats(value: Any) -> Iterator[float]:
    if isinstance(value, float):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _floats(item)
    elif isinstance(value, list):
        for item in value:
            yield from _floats(item)


def check_versions(row: CheckpointRow) -> None:
    """Refuse NUL in state keys: the server reads versions, and it has no NUL."""
    if rb"\u0000" not in row.versions:
        return
    if any("\0" in text for pair in orjson.loads(row.versions).items() for text in pair):
        raise UnserializableValueError(
            f"Checkpoint {row.checkpoint_id} cannot be stored: a state key holds NUL. Rename it."
        )
