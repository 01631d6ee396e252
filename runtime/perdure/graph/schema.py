"""From a state's declaration to its channels."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, NotRequired, Required, get_args, get_origin, get_type_hints, is_typeddict

import typing_extensions

from perdure.channels.base import BaseChannel
from perdure.channels.binop import BinaryOperatorAggregate
from perdure.channels.last_value import LastValue
from perdure.errors import GraphValidationError, NodeSignatureError

_QUALIFIERS = (Required, NotRequired, typing_extensions.ReadOnly)


def channels_of(schema: Any) -> dict[str, BaseChannel[Any, Any]]:
    """The channels of a TypedDict, by key, in the order of declaration.

    `Annotated[T, reducer]` makes a channel that reduces, `Annotated[T, channel]` is that channel, and
    a plain `T` keeps the last value.
    """
    schema = get_origin(schema) or schema
    if not (is_typeddict(schema) or typing_extensions.is_typeddict(schema)):
        raise GraphValidationError(
            f"Invalid state_schema: {schema!r}. Expected a TypedDict, whose keys are the state's."
        )
    hints = _hints(schema)
    return {key: _channel(schema, key, hint) for key, hint in hints.items()}


def _hints(schema: Any) -> dict[str, Any]:
    try:
        return get_type_hints(schema, include_extras=True)
    except NameError as error:
        raise GraphValidationError(
            f"The annotations of {schema.__name__} name {error.name!r}, which cannot be found from where "
            "it is declared. Declare both at the top of a module that is imported as one."
        ) from error


def _channel(schema: Any, key: str, hint: Any) -> BaseChannel[Any, Any]:
    while get_origin(hint) in _QUALIFIERS:
        (hint,) = get_args(hint)
    if get_origin(hint) is not Annotated:
        return LastValue(hint, key)
    typ, *metadata = get_args(hint)
    for item in metadata:
        if isinstance(item, BaseChannel):
            channel = item.copy()
            channel.key = key
            if channel.typ is None:
                channel.typ = typ
            return channel
        if isinstance(item, type) and issubclass(item, BaseChannel):
            return item(typ, key=key)
    if metadata and callable(metadata[-1]):
        return BinaryOperatorAggregate(typ, _checked_reducer(schema, key, metadata[-1]), key=key)
    return LastValue(typ, key)


def _checked_reducer(schema: Any, key: str, reducer: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    try:
        signature = inspect.signature(reducer)
    except ValueError:  # a builtin that does not tell; calling it will
        return reducer
    positional = [
        p
        for p in signature.parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)
    ]
    if len(positional) != 2 and not any(p.kind is p.VAR_POSITIONAL for p in positional):
        raise NodeSignatureError(
            f"Invalid reducer signature for {schema.__name__}.{key}. Expected (a, b) -> c. Got {signature}"
        )
    return reducer
