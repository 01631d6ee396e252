"""JSON that the server reads itself: values that it would alter, or could not read, are refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import copysign
from typing import Any

import orjson

from perdure.checkpoint.base import CheckpointRow
from perdure.checkpoint.metadata import encode_metadata
from perdure.errors import UnserializableValueError

_WHOLE_FLOAT_LIMIT = 1e16
"""The smallest float whose JSON text has an exponent. `jsonb` writes that out: it comes back as an int."""


_NO_FLOATS = frozenset({str, int, bool, type(None)})


def encode_document(metadata: Mapping[str, Any]) -> bytes:
    """Encode metadata so that a `jsonb` column gives back equal values of the same types.

    Raises UnserializableValueError.
    """
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
    """Raise UnserializableValueError if a state key holds NUL, which the server cannot read."""
    if rb"\u0000" not in row.versions:
        return
    if any("\0" in text for pair in orjson.loads(row.versions).items() for text in pair):
        raise UnserializableValueError(
            f"Checkpoint {row.checkpoint_id} cannot be stored: a state key holds NUL. Rename it."
        )
