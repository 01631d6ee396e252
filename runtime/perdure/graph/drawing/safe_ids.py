"""Ids of nodes that Mermaid accepts, whatever the names of the nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NOT_SAFE = re.compile(r"[^A-Za-z0-9_-]|-(?![A-Za-z0-9_])")

_WORDS = (
    "call|class|classdef|click|default|direction|end|flowchart|graph|href|interpolate|linkstyle|style"
    "|subgraph"
)
_IS_WORD = re.compile(rf"(?:{_WORDS})(?![a-z0-9_])|_(?:blank|parent|self|top)|[0-9-]", re.IGNORECASE)
"""The beginnings of ids that Mermaid would read as one of its own words, or as part of an arrow."""


def safe_ids(names: Iterable[str]) -> dict[str, str]:
    """Make a unique id for each name: the name itself, if Mermaid accepts that.

    Any other character becomes a backslash and its code point in hexadecimal digits.
    """
    ids: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        escaped = _escaped(name)
        # A digit that follows an escape can read as part of it, so two names may be escaped to the same id.
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
