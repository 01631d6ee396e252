"""Statements as Postgres takes them: with numbered parameters, and the names of what is bound to them."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from psycopg import sql

_PLACEHOLDER: Final = re.compile(rb"%\((\w+)\)s")


class Statement(NamedTuple):
    """A statement, ready to be sent.

    Attributes:
        text: SQL with the parameters $1, $2 and so on.
        names: names of the values that are bound to them, in that order.
    """

    text: bytes
    names: tuple[str, ...]


def statement_of(composed: sql.Composed) -> Statement:
    """Number the parameters of a composed statement: `%(name)s` becomes $1 wherever it stands."""
    text = composed.as_bytes(None)
    names = tuple(dict.fromkeys(_PLACEHOLDER.findall(text)))
    numbers = {name: b"$%d" % number for number, name in enumerate(names, 1)}
    numbered = _PLACEHOLDER.sub(lambda match: numbers[match[1]], text)
    return Statement(numbered, tuple(name.decode() for name in names))
