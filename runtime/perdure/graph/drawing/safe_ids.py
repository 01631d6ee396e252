"""Ids that Mermaid takes for ids, whatever a node is called."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NOT_SAFE = re.compile(r"[^A-Za-z0-9_-]|-(?![A-Za-z0-9_])")

_WORDS = (
    "call|class|classdef|click|default|direction|end|flowchart|graph|href|interpolate|linkstyle|style"
    "|subgraph"
)
_IS_WORD = re.compile(rf"(?:{_WORDS})(?![a-z0-9_])|_(?:blank|parent|self|top)|[0-9-]", re.IGNORECASE)
"""Where Mermaid reads one of its own words, or part of an arrow, at the beginning of an id."""


def safe_ids(names: Iterable[str]) -> dict[str, str]:
    """An id for each name, different from the others' and, where that can be, the name itself.

    What an id cannot have becomes a backslash and the character's code point in hexadecimal digits.
    """
    ids: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        escaped = _escaped(name)
        # A digit that follows an escape can read as part of it, so that two names come out the same.
        candidate, number = escaped, 1
        while candidate in taken:
            number += 1
            candidate = f"{escaped}_{number}"
        taken.add(candidate)
        ids[name] = candidate
    return ids


def _escaped(name: str) -> str:
    escaped = _NOT_SAFE.sub(lambda found: _code(found[0]), name)
    if _IS_WORD.match(escaped):
        return _code(escaped[0]) + escaped[1:]
    return escaped or "_"


def _code(character: str) -> str:
    return f"\\{ord(character):x}"
