"""One key of a schema: what its annotation says of the channel that holds it."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from functools import partial
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    NamedTuple,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
)

import typing_extensions

from perdure.channels.base import BaseChannel
from perdure.channels.binop import BinaryOperatorAggregate
from perdure.channels.last_value import LastValue
from perdure.constants import MISSING
from perdure.errors import GraphValidationError, NodeSignatureError
from perdure.managed import ManagedValue
from perdure.pregel.plan.callables import signature_of

_QUALIFIERS: Final = (Required, NotRequired, ClassVar, Final, typing_extensions.ReadOnly)
_Alias = typing_extensions.TypeAliasType

Cell = BaseChannel[Any, Any] | type[ManagedValue]


class Annotation(NamedTuple):
    """An annotation without what stands around its type.

    Attributes:
        metadata: what every Annotated around it says, the innermost first.
    """

    typ: Any
    metadata: tuple[Any, ...] = ()


def cell_of(owner: str, key: str, hint: Any, default: Callable[[], Any] | None = None) -> Cell:
    """The channel of a key, or the class of its managed value.

    Args:
        owner: the schema's name, for errors.
        default: makes what the schema says that the key starts from; None: it says nothing.
    """
    typ, metadata = unwrap(hint)
    managed = _managed(metadata)
    if managed is not None:
        return managed
    channel = _channel(owner, key, typ, metadata)
    if channel is None:
        return LastValue(typ, key)
    if default is not None and isinstance(channel, BinaryOperatorAggregate):
        channel.default = partial(_start, default)
        channel = channel.from_checkpoint(MISSING)
    return channel


def _start(default: Callable[[], Any]) -> Any:
    """A default of None says that there is nothing yet: few reducers take it for a left side."""
    value = default()
    return MISSING if value is None else value


def unwrap(hint: Any) -> Annotation:
    """The type in an annotation and all that is said about it, wherever that stands."""
    origin = get_origin(hint)
    if origin in _QUALIFIERS:
        return unwrap(get_args(hint)[0])
    if isinstance(hint, _Alias):
        return unwrap(hint.__value__)
    if isinstance(origin, _Alias):
        return unwrap(origin.__value__[get_args(hint)])
    if origin is Annotated:
        inner, *metadata = get_args(hint)
        typ, said = unwrap(inner)
        return Annotation(typ, (*said, *metadata))
    if origin in (Union, types.UnionType):
        for member in map(unwrap, get_args(hint)):
            if any(map(_is_rule, member.metadata)):
                return member
    return Annotation(hint)


def _is_rule(item: Any) -> bool:
    """Whether a piece of metadata can say how a key is kept; a docstring or a pydantic Field cannot."""
    return isinstance(_class_of(item), type) or isinstance(item, BaseChannel) or callable(item)


def _class_of(item: Any) -> type[ManagedValue] | type[BaseChannel[Any, Any]] | None:
    """The class of channels or of managed values that `item` is, or is a form of."""
    cls = get_origin(item) or item
    return cls if isinstance(cls, type) and issubclass(cls, ManagedValue | BaseChannel) else None


def _managed(metadata: tuple[Any, ...]) -> type[ManagedValue] | None:
    for item in reversed(metadata):
        cls = _class_of(item)
        if cls is not None and issubclass(cls, ManagedValue):
            return cls
    return None


def _channel(owner: str, key: str, typ: Any, metadata: tuple[Any, ...]) -> BaseChannel[Any, Any] | None:
    for item in metadata:
        if isinstance(item, BaseChannel):
            return _own(item, key, typ)
        cls = _class_of(item)
        if cls is not None:
            return _made(cls, owner, key, typ)
    reducer = _reducer(owner, key, metadata)
    return None if reducer is None else BinaryOperatorAggregate(typ, reducer, key=key)


def _own(given: BaseChannel[Any, Any], key: str, typ: Any) -> BaseChannel[Any, Any]:
    """The graph's own channel like the one given, which is of the annotated type if it has none."""
    channel = given.copy()
    channel.key = key
    if channel.typ is None:
        channel.typ = typ
        channel = channel.from_checkpoint(MISSING)
    return channel


def _made(cls: Any, owner: str, key: str, typ: Any) -> BaseChannel[Any, Any]:
    try:
        channel: BaseChannel[Any, Any] = cls(typ, key=key)
    except TypeError as error:
        raise GraphValidationError(
            f"{owner}.{key} is annotated with the class {cls.__name__}, which needs more than a type: "
            f"{error}. Annotate it with a channel that is made, {cls.__name__}(...)."
        ) from error
    return channel


def _reducer(owner: str, key: str, metadata: tuple[Any, ...]) -> Callable[[Any, Any], Any] | None:
    """The last piece of metadata that takes two values; an error if one was meant to."""
    candidates = [item for item in metadata if callable(item)]
    for item in reversed(candidates):
        if _takes_two(item):
            return _checked(owner, key, item)
    for item in candidates:
        # Markers may be callable too: what is a function, or stands where a reducer does, is none.
        if inspect.isroutine(item) or isinstance(item, partial) or item is metadata[-1]:
            raise NodeSignatureError(
                f"Invalid reducer signature for {owner}.{key}. Expected (a, b) -> c. "
                f"Got {inspect.signature(item)}"
            )
    return None


def _checked(owner: str, key: str, reducer: Any) -> Callable[[Any, Any], Any]:
    """The reducer, if what it returns is the value and not something to be awaited or iterated over."""
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    if any(is_kind(called) for is_kind in kinds for called in (reducer, type(reducer).__call__)):
        raise NodeSignatureError(
            f"The reducer of {owner}.{key} is async or a generator; it must return the new value itself."
        )
    return reducer  # type: ignore[no-any-return]


def _takes_two(function: Callable[..., Any]) -> bool:
    """Whether a function has two positional parameters; a builtin that does not tell may."""
    signature = signature_of(function)
    if signature is None:
        return True
    parameters = signature.parameters.values()
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return True
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters) == 2
