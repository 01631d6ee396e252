"""From a schema's declaration to its channels."""

from __future__ import annotations

import dataclasses
from enum import Enum, auto
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints, is_typeddict

import typing_extensions
from pydantic import BaseModel, PydanticUserError, RootModel
from pydantic.fields import FieldInfo

from perdure.errors import GraphValidationError


class Kind(Enum):
    """What a node whose input has the schema is given."""

    BARE = auto()
    """The one value that the state is."""
    MAPPING = auto()
    """A dict, of a TypedDict or of any other class with annotations."""
    DATACLASS = auto()
    MODEL = auto()
    """A pydantic model."""


def kind_of(declared: Any) -> Kind:
    """What a node with this schema is given."""
    cls = class_of(declared)
    if get_origin(declared) is Annotated or not isinstance(cls, type):
        return Kind.BARE
    if issubclass(cls, BaseModel):
        return Kind.BARE if issubclass(cls, RootModel) else Kind.MODEL
    if dataclasses.is_dataclass(cls):
        return Kind.DATACLASS
    return Kind.MAPPING if is_typed_dict(cls) or hints_of(cls) else Kind.BARE


def class_of(declared: Any) -> Any:
    """The class that a schema is, or is a form of: of `Page[int]`, `Page`."""
    return get_origin(declared) or declared


def is_typed_dict(declared: Any) -> bool:
    """Whether this is a TypedDict, of `typing` or of `typing_extensions`."""
    cls = class_of(declared)
    return is_typeddict(cls) or typing_extensions.is_typeddict(cls)


def name_of_schema(declared: Any) -> str:
    """A schema's name, for messages."""
    return getattr(class_of(declared), "__name__", None) or repr(declared)


def hints_of(declared: Any) -> dict[str, Any]:
    """Annotations, resolved; those of a generic class with its parameters in their place."""
    cls = class_of(declared)
    try:
        hints = get_type_hints(cls, include_extras=True)
    except NameError as error:
        raise GraphValidationError(
            f"The annotations of {name_of_schema(cls)} name {error.name!r}, which cannot be found from where "
            "it is declared. Declare both at the top of a module that is imported as one."
        ) from error
    given = _parameters(declared)
    return {key: _filled_in(hint, given) for key, hint in hints.items()} if given else hints


def _parameters(declared: Any) -> dict[Any, Any]:
    """What the parameters of a generic schema, and of those that it is derived from, stand for."""
    cls = class_of(declared)
    own = getattr(cls, "__parameters__", ())
    given = dict(zip(own, get_args(declared), strict=False))
    for base in getattr(cls, "__orig_bases__", ()):
        for parameter, argument in _parameters(base).items():
            if parameter not in own:  # or the class uses the name for something else
                given.setdefault(parameter, _filled_in(argument, given))
    return given


def _filled_in(hint: Any, given: dict[Any, Any]) -> Any:
    if isinstance(hint, TypeVar | typing_extensions.TypeVar):
        return given.get(hint, hint)
    parameters = getattr(hint, "__parameters__", ())
    return hint[tuple(given.get(each, each) for each in parameters)] if parameters else hint


def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """A pydantic model's fields, once all that its annotations name can be found."""
    if not model.__pydantic_complete__:
        try:
            model.model_rebuild()
        except (PydanticUserError, NameError) as error:
            raise GraphValidationError(
                f"The pydantic model {model.__name__} is not complete: {error}"
            ) from error
    return model.model_fields
