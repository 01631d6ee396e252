"""Lists as Postgres arrays, encoded at once.

A statement binds some thirty arrays, and psycopg's general way, through a dumper for each element, costs
more than the statement itself. These types are bytes already, in the binary format of a one-dimensional
array, which the server's `array_recv` reads: number of dimensions, a flag for nulls, the element's oid,
length, lower bound; then each element as its length and bytes, null as length -1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache
from struct import Struct
from typing import Any, Final, Self

from psycopg import AsyncConnection
from psycopg.adapt import Buffer, Dumper
from psycopg.pq import Format

_HEADER: Final = Struct("!iiIii").pack
_EMPTY: Final = Struct("!iiI").pack
_LENGTH: Final = Struct("!i").pack
_INT4: Final = Struct("!ii").pack
_INT8: Final = Struct("!iq").pack
_NULL: Final = _LENGTH(-1)


def _array(element: int, length: int, parts: Iterable[bytes]) -> bytes:
    if not length:
        return _EMPTY(0, 0, element)
    return _HEADER(1, 1, element, length, 1) + b"".join(parts)


@lru_cache(maxsize=2048)
def _text(value: str | None) -> bytes:
    # Cached, because names recur in each row, and ids in several.
    if value is None:
        return _NULL
    encoded = value.encode()
    return _LENGTH(len(encoded)) + encoded


class TextArray(bytes):
    """A `text[]` of names and ids, whose encodings are remembered; long texts go to `long_texts`."""

    def __new__(cls, values: Collection[str | None]) -> Self:
        return super().__new__(cls, _array(25, len(values), map(_text, values)))

    @classmethod
    def long_texts(cls, values: Collection[str | None]) -> Self:
        """Return an array of texts that may be long: their encodings are not remembered."""
        return super().__new__(cls, _array(25, len(values), map(_text.__wrapped__, values)))


class BytesArray(bytes):
    """A `bytea[]`."""

    def __new__(cls, values: Collection[bytes]) -> Self:
        parts = [part for value in values for part in (_LENGTH(len(value)), value)]
        return super().__new__(cls, _array(17, len(values), parts))


class Int4Array(bytes):
    """An `int4[]`."""

    def __new__(cls, values: Collection[int]) -> Self:
        return super().__new__(cls, _array(23, len(values), [_INT4(4, value) for value in values]))


class Int8Array(bytes):
    """An `int8[]`."""

    def __new__(cls, values: Collection[int]) -> Self:
        return super().__new__(cls, _array(20, len(values), [_INT8(8, value) for value in values]))


class _AsItIs(Dumper):
    format = Format.BINARY

    def dump(self, obj: Any) -> Buffer:
        return obj  # type: ignore[no-any-return]


class _TextDumper(_AsItIs):
    oid = 1009


class _BytesDumper(_AsItIs):
    oid = 1001


class _Int4Dumper(_AsItIs):
    oid = 1007


class _Int8Dumper(_AsItIs):
    oid = 1016


def register(connection: AsyncConnection[Any]) -> None:
    """Teach a connection these types; nothing else of it changes."""
    adapters = connection.adapters
    adapters.register_dumper(TextArray, _TextDumper)
    adapters.register_dumper(BytesArray, _BytesDumper)
    adapters.register_dumper(Int4Array, _Int4Dumper)
    adapters.register_dumper(Int8Array, _Int8Dumper)
