"""Fields: the annotation of one key of a schema, and the channel or managed value that it declares."""

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

Cell = BaseChannel | type[ManagedValue]


class Annotation(NamedTuple):
    """An annotation, taken apart.

    Attributes:
        typ: the type, without qualifiers and metadata.
        metadata: the metadata of every Annotated around the type, the innermost first.
    """

    typ: Any
    metadata: tuple[Any, ...] = ()


def cell_of(owner: str, key: str, hint: object, default: Callable[[], Any] | None = None) -> Cell:
    """Make the channel of a key, or return the class of its managed value.

    Args:
        owner: the schema's name, for errors.
        default: a function that makes the key's default; None: the schema has no default for it.
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
    """Make a reduced key's default; None means no value yet, because few reducers take it as left side."""
    value = default()
    return MISSING if value is None else value


def unwrap(hint: Any) -> Annotation:
    """Take an annotation apart: find the type and all metadata, however deep they are nested."""
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


def _is_rule(item: object) -> bool:
    """Return True if a piece of metadata may be a reducer, a channel or a managed value."""
    return isinstance(_class_of(item), type) or isinstance(item, BaseChannel) or callable(item)


def _class_of(item: object) -> type[ManagedValue] | type[BaseChannel] | None:
    """Return the class of channels or of managed values that `item` is, or is a form of."""
    cls = get_origin(item) or item
    return cls if isinstance(cls, type) and issubclass(cls, ManagedValue | BaseChannel) else None


def _managed(metadata: tuple[object, ...]) -> type[ManagedValue] | None:
    for item in reversed(metadata):
        cls = _class_of(item)
        if cls is not None and issubclass(cls, ManagedValue):
            return cls
    return None


def _channel(owner: str, key: str, typ: object, metadata: tuple[object, ...]) -> BaseChannel | None:
    for item in metadata:
        if isinstance(item, BaseChannel):
            return _own(item, key, typ)
        cls = _class_of(item)
        if cls is not None:
            return _made(cls, owner, key, typ)
    reducer = _reducer(owner, key, metadata)
    return None if reducer is None else BinaryOperatorAggregate(typ, reducer, key=key)


def _own(given: BaseChannel, key: str, typ: object) -> BaseChannel:
    """Copy an annotated channel for this graph; it takes the annotated type if it has none."""
    channel = given.copy()
    channel.key = key
    if channel.typ is None:
        channel.typ = typ
        channel = channel.from_checkpoint(MISSING)
    return channel


def _made(cls: Any, owner: str, key: str, typ: object) -> BaseChannel:
    try:
        channel: BaseChannel = cls(typ, key=key)
    except TypeError as error:
        raise GraphValidationError(
            f"{owner}.{key} is annotated with the class {cls.__name__}, which needs more than a type: "
            f"{error}. Annotate it with an instance, {cls.__name__}(...)."
        ) from error
    return channel


def _reducer(owner: str, key: str, metadata: tuple[Any, ...]) -> Callable[[Any, Any], Any] | None:
    """Return the last piece of metadata that takes two values; None if there is none.

    Raises NodeSignatureError if one was meant to be a reducer, but takes another number of values.
    """
    candidates = [item for item in metadata if callable(item)]
    for item in reversed(candidates):
        if _takes_two(item):
            return _checked(owner, key, item)
    for item in candidates:
        # Markers of other libraries may be callable too. A function, or the last piece of metadata, is not
        # one of them: it was meant to be the reducer.
        if inspect.isroutine(item) or isinstance(item, partial) or item is metadata[-1]:
            raise NodeSignatureError(
                f"Invalid reducer signature for {owner}.{key}. Expected (a, b) -> c. "
                f"Got {inspect.signature(item)}"
            )
    return None


def _checked(owner: str, key: str, reducer: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """Return a reducer, if it returns the value itself and is neither async nor a generator.

    Raises NodeSignatureError if it is.
    """
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    if any(is_kind(called) for is_kind in kinds for called in (reducer, type(reducer).__call__)):
        raise NodeSignatureError(
            f"The reducer of {owner}.{key} is async or a generator; it must return the new value itself."
        )
    return reducer


def _takes_two(function: Callable[..., object]) -> bool:
    """Return True if a function has two positional parameters, or is a builtin with no known signature."""
    signature = signature_of(function)
    if signature is None:
        return True
    parameters = signature.parameters.values()
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return True
    return sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters) == 2
