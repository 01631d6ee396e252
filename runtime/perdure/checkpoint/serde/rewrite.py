"""Values to JSON and back: tags are put in and taken out, by pure recursion."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from math import isfinite
from typing import Any, Final

from perdure.checkpoint.serde import tags
from perdure.checkpoint.serde.refusals import RefusedError, index_step, key_step, unknown_type
from perdure.checkpoint.serde.tags import CONTAINERS, LEAVES, MAX_LEVELS, TAG
from perdure.errors import InvalidPayloadError

_INT_MIN: Final = -(2**63)
_INT_MAX: Final = 2**64 - 1

_TOO_DEEP: Final = partial(
    RefusedError,
    f"is nested too deeply ({MAX_LEVELS} levels of JSON at most; a tuple or set takes three)",
    "store it in a flatter form",
)

_MALFORMED: Final = (ValueError, TypeError, LookupError, ArithmeticError, NotImplementedError, OSError)
"""The errors of readers for a payload that no writer here made."""


# Writing


def rewritten(value: Any, levels: int = MAX_LEVELS) -> Any:
    """Return `value` in JSON's own types, with tags, nested at most `levels` deep. Raises RefusedError."""
    kind = type(value)
    if kind is str:
        return value if _is_unicode(value) else _tagged(tags.STR, value, levels)
    if kind is bool or value is None:
        return value
    if kind is int:
        return value if _INT_MIN <= value <= _INT_MAX else _tagged(tags.INT, value, levels)
    if kind is float:
        return value if isfinite(value) else _tagged(tags.FLOAT, value, levels)
    if kind is list:
        return _written(value, value, levels, index_step)
    if kind is dict:
        return _written_dict(value, levels)
    if kind in LEAVES:
        return _tagged(LEAVES[kind], value, levels)
    if kind in CONTAINERS:
        tag = CONTAINERS[kind]
        return {TAG: [tag.name, _written(value, tag.take(value), levels - 2, tag.step)]}
    raise unknown_type(value, tags.STORED_TYPES)


def _tagged(tag: tags.Tag, value: Any, levels: int) -> dict[str, Any]:
    if levels < 2:
        raise _TOO_DEEP()
    return {TAG: [tag.name, rewritten(tag.take(value), levels - 2)]}


def _written(container: Any, items: Iterable[Any], levels: int, step: Callable[[int], str]) -> list[Any]:
    """Return the items of `container`, rewritten; `step` names the place of the item with a number."""
    if levels < 1:
        raise _TOO_DEEP()
    result: list[Any] = []
    try:
        for item in items:
            result.append(rewritten(item, levels - 1))  # noqa: PERF401  # a refusal counts them
    except RefusedError as refusal:
        refusal.leave(container, step(len(result)))
        raise
    return result


def _written_dict(value: dict[Any, Any], levels: int) -> dict[str, Any]:
    def step(index: int) -> str:
        return key_step(next(islice(value, index, None)))

    if TAG not in value and all(type(key) is str and _is_unicode(key) for key in value):
        return dict(zip(value, _written(value, value.values(), levels, step), strict=True))
    keys = _written(value, value, levels - 3, lambda index: ".keys()")
    values = _written(value, value.values(), levels - 3, step)
    return {TAG: [tags.DICT.name, list(zip(keys, values, strict=True))]}


def _is_unicode(text: str) -> bool:
    """Return True if the text has an encoding in UTF-8: lone surrogates have none."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# Reading


def rebuilt(node: Any) -> Any:
    """Return the value of `node`, as orjson read it; lists and dicts in it are reused."""
    if type(node) is list:
        for index, item in enumerate(node):
            if type(item) is list or type(item) is dict:
                node[index] = rebuilt(item)
    elif type(node) is dict:
        if TAG in node:
            return _untagged(node)
        for key, item in node.items():
            if type(item) is list or type(item) is dict:
                node[key] = rebuilt(item)
    return node


def _untagged(node: dict[str, Any]) -> Any:
    pair = node[TAG]
    if len(node) != 1 or type(pair) is not list or len(pair) != 2 or type(pair[0]) is not str:
        raise InvalidPayloadError(f"A stored value carries a malformed tag: {node!r:.200}")
    name, payload = pair
    reader = tags.READERS.get(name)
    if reader is None:
        raise InvalidPayloadError(
            f"A stored value carries the tag {name!r:.100}, which this version of Perdure does not know; "
            "use the version that wrote it (nothing is imported or called because of a tag)"
        )
    payload = rebuilt(payload)
    try:
        return reader(payload)
    except _MALFORMED as error:
        raise InvalidPayloadError(f"A stored {name} is malformed: {error}") from error
