"""Names of nodes and channels: their rules, and suggestions for unknown ones."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

from perdure.constants import START
from perdure.errors import GraphValidationError

EVERY_NODE: Final = "*"
"""A stand-in for a list of all nodes."""

_RESERVED_CHARACTERS: Final = "|:"


def names_of(names: str | Iterable[str]) -> tuple[str, ...]:
    """Return one name, or several, as a tuple."""
    return (names,) if isinstance(names, str) else tuple(names)


def listed_names(*several: str | Iterable[str]) -> tuple[str, ...]:
    """Return the names that are listed in any of `several`; "*" lists none in particular."""
    return tuple(name for names in several if names != EVERY_NODE for name in names_of(names))


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about a name that is not known."""
    names = sorted({*known} - {START})
    close = get_close_matches(name, names, n=1)
    return f" Did you mean {close[0]!r}?" if close else f" Known: {', '.join(names) or 'none'}."


def check_characters(name: str) -> None:
    """Refuse a node's name with a character that separates names in a namespace."""
    for character in _RESERVED_CHARACTERS:
        if character in name:
            raise GraphValidationError(
                f"{character!r} is a reserved character and is not allowed in the node names: {name!r}."
            )
