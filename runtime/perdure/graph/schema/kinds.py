"""From a schema's declaration to its channels."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from enum import Enum, auto
from functools import partial
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints, is_typeddict

import typing_extensions
from pydantic import BaseModel, PydanticUserError, RootModel
from pydantic.fields import FieldInfo

from perdure.channels.base import BaseChannel
from perdure.constants import RESERVED_NODE_NAMES, ROOT, is_trigger
from perdure.errors import GraphValidationError
from perdure.graph.schema.fields import cell_of
from perdure.managed import ManagedValue


class Kind(Enum):
    """What a node whose input has the schema is given."""

    BARE = auto()
    """The one value that the state is."""
    MAPPING = auto()
    """A dict, of a TypedDict or of any other class with annotations."""
    DATACLASS = auto()
    MODEL = auto()
    """A pydantic model."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """A schema, taken apart.

    Attributes:
        channels, managed: by key, in the order of declaration.
    """

    channels: dict[str, BaseChannel[Any, Any]]
    managed: dict[str, type[ManagedValue]]


def schema_of(declared: Any) -> Schema:
    """Take a schema apart: a TypedDict, a dataclass, a pydantic model, or the type of a bare value.

    `Annotated[T, reducer]` makes a channel that reduces, `Annotated[T, channel]` is that channel, and
    a plain `T` keeps the last value.
    """
    kind = kind_of(declared)
    fields = _fields(declared, kind)
    if kind is not Kind.BARE:
        _check_keys(declared, fields)
    cells = {
        key: cell_of(name_of_schema(declared), key, hint, default) for key, (hint, default) in fields.items()
    }
    return Schema(
        channels={key: cell for key, cell in cells.items() if isinstance(cell, BaseChannel)},
        managed={key: cell for key, cell in cells.items() if not isinstance(cell, BaseChannel)},
    )


def check_schema(declared: Any) -> None:
    """Refuse what cannot be told from other schemas, such as a dict of types."""
    try:
        hash(declared)
    except TypeError as error:
        raise GraphValidationError(
            f"{declared!r} cannot be a schema: {error}. Declare a TypedDict, a dataclass or a pydantic model."
        ) from None


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


_RESERVED_KEYS = (RESERVED_NODE_NAMES - {"configurable"}) | {ROOT}


def _check_keys(declared: Any, keys: Iterable[str]) -> None:
    """Refuse a key that a channel of the engine's, or a control write that it stores, would be taken for."""
    for key in keys:
        if key in _RESERVED_KEYS or is_trigger(key):
            raise GraphValidationError(
                f"{name_of_schema(declared)} declares the state key {key!r}, which is reserved: the engine "
                "uses this name itself. Give the key another name."
            )


_Default = Callable[[], Any]


def _fields(declared: Any, kind: Kind) -> dict[str, tuple[Any, _Default | None]]:
    """The keys of a schema with their annotations, and what makes their defaults."""
    if kind is Kind.BARE:
        return {ROOT: (declared, None)}
    if kind is Kind.MODEL:
        return {key: (_spelt(field), _model_default(field)) for key, field in fields_of(declared).items()}
    hints = hints_of(declared)
    if kind is Kind.MAPPING:
        return {key: (hint, None) for key, hint in hints.items() if key != "__slots__"}
    if init_only := [key for key, hint in hints.items() if isinstance(hint, dataclasses.InitVar)]:
        raise GraphValidationError(
            f"{name_of_schema(declared)} has {init_only[0]!r} as an InitVar, which its objects do not keep: "
            "it cannot be part of a state. Make it a field."
        )
    # A field that is not given to the constructor is the object's own, not the state's.
    fields = [field for field in dataclasses.fields(class_of(declared)) if field.init]
    return {field.name: (hints[field.name], _dataclass_default(field)) for field in fields}


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


def _spelt(field: FieldInfo) -> Any:
    """A field's annotation as it was written, for pydantic keeps its parts apart."""
    return Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation


def _model_default(field: FieldInfo) -> _Default | None:
    if field.is_required() or getattr(field, "default_factory_takes_validated_data", False):
        return None
    return partial(field.get_default, call_default_factory=True)


def _dataclass_default(field: dataclasses.Field[Any]) -> _Default | None:
    if field.default is not dataclasses.MISSING:
        return partial(_given, field.default)
    return None if field.default_factory is dataclasses.MISSING else field.default_factory


def _given(value: Any) -> Any:
    return value
