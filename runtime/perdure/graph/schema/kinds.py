"""Kinds of schemas, and the annotations that schemas of each kind have."""

from __future__ import annotations

import dataclasses
from enum import Enum, auto
from typing import Annotated, Any, TypeGuard, TypeVar, get_args, get_origin, get_type_hints, is_typeddict

import typing_extensions
from pydantic import BaseModel, PydanticUserError, RootModel
from pydantic.fields import FieldInfo

from perdure.errors import GraphValidationError


class Kind(Enum):
    """A kind of schema, by the input that it gives to a node."""

    BARE = auto()
    """The one value that the state is."""
    MAPPING = auto()
    """A dict, of a TypedDict or of any other class with annotations."""
    DATACLASS = auto()
    MODEL = auto()
    """A pydantic model."""


def kind_of(declared: object) -> Kind:
    """Return the kind of a schema."""
    cls = class_of(declared)
    if get_origin(declared) is Annotated or not isinstance(cls, type):
        return Kind.BARE
    if issubclass(cls, BaseModel):
        return Kind.BARE if issubclass(cls, RootModel) else Kind.MODEL
    if dataclasses.is_dataclass(cls):
        return Kind.DATACLASS
    return Kind.MAPPING if is_typed_dict(cls) or hints_of(cls) else Kind.BARE


def is_model(declared: object) -> TypeGuard[type[BaseModel]]:
    """Return True for a pydantic model, unless it is a RootModel, which is one bare value."""
    return kind_of(declared) is Kind.MODEL


def class_of(declared: object) -> Any:
    """Return the class that a schema is, or is a form of: that of `Page[int]` is `Page`."""
    return get_origin(declared) or declared


def is_typed_dict(declared: object) -> bool:
    """Return True for a TypedDict, of `typing` or of `typing_extensions`."""
    cls = class_of(declared)
    return is_typeddict(cls) or typing_extensions.is_typeddict(cls)


def name_of_schema(declared: object) -> str:
    """Return a schema's name, for messages."""
    return getattr(class_of(declared), "__name__", None) or repr(declared)


def hints_of(declared: object) -> dict[str, Any]:
    """Return the annotations of a schema, resolved; type parameters of a generic class are filled in."""
    cls = class_of(declared)
    try:
        hints = get_type_hints(cls, include_extras=True)
    except NameError as error:
        raise GraphValidationError(
            f"The annotations of {name_of_schema(cls)} name {error.name!r}, which is not defined in its "
            "module. Define both at the top level of a module that can be imported."
        ) from error
    given = _parameters(declared)
    return {key: _filled_in(hint, given) for key, hint in hints.items()} if given else hints


def _parameters(declared: object) -> dict[object, Any]:
    """Return the arguments of a generic schema and of its base classes, by type parameter."""
    cls = class_of(declared)
    own = getattr(cls, "__parameters__", ())
    given = dict(zip(own, get_args(declared), strict=False))
    for base in getattr(cls, "__orig_bases__", ()):
        for parameter, argument in _parameters(base).items():
            if parameter not in own:  # or the class uses the name for something else
                given.setdefault(parameter, _filled_in(argument, given))
    return given


def _filled_in(hint: Any, given: dict[object, Any]) -> Any:
    if isinstance(hint, TypeVar | typing_extensions.TypeVar):
        return given.get(hint, hint)
    parameters = getattr(hint, "__parameters__", ())
    return hint[tuple(given.get(each, each) for each in parameters)] if parameters else hint


def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return a pydantic model's fields, once its annotations are resolved.

    Raises GraphValidationError if they cannot be.
    """
    if not model.__pydantic_complete__:
        try:
            model.model_rebuild()
        except (PydanticUserError, NameError) as error:
            raise GraphValidationError(
                f"The pydantic model {model.__name__} is not complete: {error}. Define the types in its "
                "annotations before it is used as a schema."
            ) from error
    return model.model_fields
