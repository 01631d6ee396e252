"""Schemas taken apart: the channels and managed values that they declare."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from functools import partial
from typing import Annotated, Any

from pydantic.fields import FieldInfo

from perdure.channels.base import BaseChannel
from perdure.constants import RESERVED_NODE_NAMES, ROOT, is_trigger
from perdure.errors import GraphValidationError
from perdure.graph.schema.fields import cell_of
from perdure.graph.schema.kinds import Kind, class_of, fields_of, hints_of, kind_of, name_of_schema
from perdure.managed import ManagedValue


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """A schema, taken apart.

    Attributes:
        channels: its channels by key, in the order of declaration.
        managed: its managed values by key, likewise.
    """

    channels: dict[str, BaseChannel]
    managed: dict[str, type[ManagedValue]]


def schema_of(declared: object) -> Schema:
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


def check_schema(declared: object) -> None:
    """Refuse a schema that cannot be hashed, such as a dict of types."""
    try:
        hash(declared)
    except TypeError as error:
        raise GraphValidationError(
            f"{declared!r} cannot be a schema: {error}. Declare a TypedDict, a dataclass or a pydantic model."
        ) from None


_RESERVED_KEYS = (RESERVED_NODE_NAMES - {"configurable"}) | {ROOT}


def _check_keys(declared: object, keys: Iterable[str]) -> None:
    """Refuse a key that the engine gives to a channel or a stored write of its own."""
    for key in keys:
        if key in _RESERVED_KEYS or is_trigger(key):
            raise GraphValidationError(
                f"{name_of_schema(declared)} declares the state key {key!r}, which is reserved: the engine "
                "uses this name itself. Give the key another name."
            )


_Default = Callable[[], Any]


def _fields(declared: Any, kind: Kind) -> dict[str, tuple[Any, _Default | None]]:
    """Return the keys of a schema with their annotations, and with the functions that make their defaults."""
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
    # A field that the constructor does not take belongs to the object, not to the state.
    fields = [field for field in dataclasses.fields(class_of(declared)) if field.init]
    return {field.name: (hints[field.name], _dataclass_default(field)) for field in fields}


def _spelt(field: FieldInfo) -> Any:
    """Return a field's annotation as it was written; pydantic stores the type and the metadata separately."""
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
