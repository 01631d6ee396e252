"""Statements as Postgres takes them, and rows as its answers are read: both by name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import starmap
from typing import Any, Final, Generic, NamedTuple, TypeVar

from psycopg import sql
from psycopg.pq.abc import PGresult

Row = TypeVar("Row")

_PLACEHOLDER: Final = re.compile(rb"%\((\w+)\)s")


class Statement(NamedTuple, Generic[Row]):
    """A statement, ready to be sent.

    Attributes:
        sentence: what it does, for people.
        text: SQL with the parameters $1, $2 and so on.
        names: names of the values that are bound to them, in that order.
        row: the class of its rows.
        columns: names of the columns that it returns: the fields of `row`, in their order.
    """

    sentence: str
    text: bytes
    names: tuple[str, ...]
    row: type[Row]
    columns: list[bytes]

    def rows(self, result: PGresult, values: Iterable[tuple[Any, ...]]) -> list[Row]:
        """Return the rows of a result, each value under the name of its column.

        The names are compared once for each result, which costs 1 us. psycopg's `class_row` makes a dict
        of each row: five times as much for a page of a history.
        """
        if list(map(result.fname, range(result.nfields))) != self.columns:
            raise TypeError(f"A statement whose rows are read as {self.row.__name__} returns other columns.")
        return list(starmap(self.row, values))


def statement_of(sentence: str, composed: sql.Composed, row: type[Row]) -> Statement[Row]:
    """Number the parameters of a composed statement: `%(name)s` becomes $1 wherever it stands."""
    text = composed.as_bytes(None)
    names = tuple(dict.fromkeys(_PLACEHOLDER.findall(text)))
    numbers = {name: b"$%d" % number for number, name in enumerate(names, 1)}
    return Statement(
        sentence=sentence,
        text=_PLACEHOLDER.sub(lambda match: numbers[match[1]], text),
        names=tuple(name.decode() for name in names),
        row=row,
        columns=[field.encode() for field in _fields(row)],
    )


def _fields(row: type[Any]) -> tuple[str, ...]:
    """Return the fields of a named tuple or a dataclass, in the order in which it takes them."""
    fields: tuple[str, ...] = row.__match_args__
    return fields
