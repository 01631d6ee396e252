"""TypedDicts for pydantic, which before Python 3.12 knows only those of typing_extensions."""

from __future__ import annotations

import types
from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Annotated, Any, Final, NotRequired, Required, Union, get_args, get_origin

import typing_extensions
from pydantic import ConfigDict, PydanticUserError, TypeAdapter

from perdure.graph.schema.fields import unwrap
from perdure.graph.schema.kinds import class_of, hints_of, is_typed_dict

LENIENT: Final = ConfigDict(arbitrary_types_allowed=True)
"""A configuration with which pydantic checks just the class of values that it does not know."""


def adapter_of(hint: object) -> TypeAdapter[Any]:
    """Make a TypeAdapter of any type; values that pydantic does not know are checked by their class."""
    portable = made_over(hint)
    try:
        return TypeAdapter(portable, config=LENIENT)
    except PydanticUserError as error:
        if error.code != "type-adapter-config-unused":
            raise
        return TypeAdapter(portable)  # its class has a configuration of its own


def made_over(hint: Any, above: Mapping[object, Any] | None = None) -> Any:
    """Remake every TypedDict in an annotation as one of typing_extensions.

    Where a TypedDict contains itself, the inner one becomes `dict[str, Any]`.

    Args:
        above: the TypedDicts that are being remade, with what takes their place inside.
    """
    above = above or {}
    if is_typed_dict(hint):
        return above[hint] if hint in above else _remade(hint, {**above, hint: dict[str, Any]})
    origin, arguments = get_origin(hint), get_args(hint)
    if not arguments:
        return hint
    if origin is Annotated:
        return Annotated[made_over(arguments[0], above), *arguments[1:]]
    parts = tuple(part if isinstance(part, list) else made_over(part, above) for part in arguments)
    if all(new is old for new, old in zip(parts, arguments, strict=True)):
        return hint
    if origin in (Union, types.UnionType):
        return reduce(or_, parts)
    return origin[parts]


def _remade(declared: object, above: Mapping[object, Any]) -> Any:
    cls = class_of(declared)
    hints = {key: _key(cls, key, hint, above) for key, hint in hints_of(declared).items()}
    named = typing_extensions.TypedDict(cls.__name__, hints)  # type: ignore[misc]
    remade: Any = named
    remade.__doc__ = cls.__doc__
    remade.__pydantic_config__ = LENIENT
    return remade


def _key(cls: Any, key: str, hint: object, above: Mapping[object, Any]) -> Any:
    typ, metadata = unwrap(hint)
    made = made_over(typ, above)
    made = Annotated[made, *metadata] if metadata else made
    return Required[made] if _is_required(cls, key, hint) else NotRequired[made]


def _is_required(cls: Any, key: str, hint: object) -> bool:
    """Read Required and NotRequired from the hint first: Python does not see them in string annotations."""
    while (origin := get_origin(hint)) in (Required, NotRequired, Annotated, typing_extensions.ReadOnly):
        if origin in (Required, NotRequired):
            return origin is Required
        hint = get_args(hint)[0]
    return key in cls.__required_keys__
