"""Lists as Postgres arrays, built in one go.

A statement binds some thirty arrays, and psycopg's general way through each element's own dumper
costs more than the statement itself. These wrappers write the binary format of a one-dimensional
array directly (the layout is in the server's `array_recv`: dimensions, whether there are nulls, the
element's oid, length, lower bound; then each element as its length and bytes, null as length -1).
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Any, ClassVar

from psycopg import AsyncConnection
from psycopg.adapt import Buffer, Dumper
from psycopg.pq import Format

_HEADER = Struct("!iiIii")
_EMPTY = Struct("!iiI")
_LENGTH = Struct("!i")
_INT4 = Struct("!ii")
_INT8 = Struct("!iq")
_NULL = _LENGTH.pack(-1)


class TextArray(list[str | None]):
    """Becomes a `text[]`."""


class BytesArray(list[bytes]):
    """Becomes a `bytea[]`."""


class Int4Array(list[int]):
    """Becomes a `int4[]`."""


class Int8Array(list[int]):
    """Becomes a `int8[]`."""


class _ArrayDumper(Dumper):
    format = Format.BINARY
    element: ClassVar[int]

    def dump(self, obj: list[Any]) -> Buffer:
        if not obj:
            return _EMPTY.pack(0, 0, self.element)
        parts = [_HEADER.pack(1, 1, self.element, len(obj), 1)]
        parts += self.elements(obj)
        return b"".join(parts)

    def elements(self, values: list[Any]) -> Iterable[bytes]:
        raise NotImplementedError


class _BytesDumper(_ArrayDumper):
    oid = 1001
    element = 17

    def elements(self, values: list[bytes]) -> Iterable[bytes]:
        for value in values:
            yield _LENGTH.pack(len(value))
            yield value


class _TextDumper(_ArrayDumper):
    oid = 1009
    element = 25

    def elements(self, values: list[str | None]) -> Iterable[bytes]:
        for value in values:
            if value is None:
                yield _NULL
            else:
                encoded = value.encode()
                yield _LENGTH.pack(len(encoded))
                yield encoded


class _Int4Dumper(_ArrayDumper):
    oid = 1007
    element = 23

    def elements(self, values: list[int]) -> Iterable[bytes]:
        return [_INT4.pack(4, value) for value in values]


class _Int8Dumper(_ArrayDumper):
    oid = 1016
    element = 20

    def elements(self, values: list[int]) -> Iterable[bytes]:
        return [_INT8.pack(8, value) for value in values]


def register(connection: AsyncConnection[Any]) -> None:
    """Teach a connection these types; nothing else of it changes."""
    adapters = connection.adapters
    adapters.register_dumper(TextArray, _TextDumper)
    adapters.register_dumper(BytesArray, _BytesDumper)
    adapters.register_dumper(Int4Array, _Int4Dumper)
    adapters.register_dumper(Int8Array, _Int8Dumper)
