"""Objects of annotated classes as mappings of state keys."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from inspect import get_annotations
from typing import Any

from pydantic import BaseModel

from perdure.data import Command, Send
from perdure.errors import InvalidUpdateError


def is_annotated(value: object) -> bool:
    """Return True if the class of `value`, or one of its bases, has annotations."""
    return any(get_annotations(cls) for cls in type(value).__mro__)


def attributes(value: Any) -> dict[str, Any]:
    """Return the attributes that an object of an annotated class writes, by name.

    A pydantic model writes the fields that were set. Any other object writes its annotated attributes. It
    writes None only to an attribute whose default is another value.
    """
    if isinstance(value, BaseModel):
        set_ = value.model_fields_set
        return {name: getattr(value, name) for name in type(value).model_fields if name in set_}
    defaults = _defaults(type(value))
    held = {name: getattr(value, name) for name in defaults if hasattr(value, name)}
    return {name: each for name, each in held.items() if each is not None or defaults[name] is not None}


def _defaults(cls: type) -> dict[str, Any]:
    """Return the annotated names of a class and its bases with their defaults; None without a default."""
    if dataclasses.is_dataclass(cls):
        return {
            field.name: field.default_factory
            if field.default is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING
            else (None if field.default is dataclasses.MISSING else field.default)
            for field in dataclasses.fields(cls)
        }
    if issubclass(cls, tuple):
        named: dict[str, Any] = getattr(cls, "_field_defaults", {})
        return {name: named.get(name) for name in getattr(cls, "_fields", ())}
    names = [name for base in reversed(cls.__mro__) for name in get_annotations(base)]
    return {name: getattr(cls, name, None) for name in names}


def mapping_of(graph: str, given: Any) -> Mapping[str, Any]:
    """Return an input as a mapping of state keys.

    Raises:
        InvalidUpdateError: the input is neither a mapping nor an object of an annotated class.
    """
    if type(given) is dict or isinstance(given, Mapping):  # the first test costs next to nothing
        return given
    if is_annotated(given) and not isinstance(given, Command | Send):
        return attributes(given)
    raise InvalidUpdateError(
        f"Expected dict, got {given!r}: the input of graph {graph!r} is a mapping of state keys, "
        f"not {type(given).__name__}. Pass None to continue a stored thread."
    )
