"""Tokens: random bytes that identify one object of this process."""

from __future__ import annotations

import os
from typing import Any
from weakref import ref

from perdure.checkpoint.serde.refusals import RefusedError, type_name

_tokens: dict[int, tuple[ref[Any], bytes]] = {}


def token_of(value: Any) -> bytes:
    """Return the token of an object: the same as long as it lives, and no other object's in any process.

    It is random, because processes that were forked from one would count the same numbers. Raises
    RefusedError for an object that cannot be weakly referenced: its end would not be noticed, and the next
    object could be in its place.
    """
    known = _tokens.get(id(value))
    if known is not None and known[0]() is value:
        return known[1]
    key, token = id(value), os.urandom(16)

    def gone(reference: ref[Any]) -> None:
        if key in _tokens and _tokens[key][0] is reference:
            del _tokens[key]

    try:
        _tokens[key] = (ref(value, gone), token)
    except TypeError:
        raise RefusedError(
            f"has type {type_name(type(value))}, of which nothing tells one value from another",
            "use a function, or an object whose class is written in Python",
        ) from None
    return token
