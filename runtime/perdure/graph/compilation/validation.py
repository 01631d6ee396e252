"""Validation of writes to a state that pydantic models declare, and of the inputs that nodes get."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

from pydantic import BaseModel, PydanticUserError
from pydantic_core import CoreSchema
from pydantic_core.core_schema import any_schema

from perdure.channels.any_value import AnyValue
from perdure.channels.binop import BinaryOperatorAggregate, unwrap_overwrite
from perdure.channels.ephemeral_value import EphemeralValue
from perdure.channels.last_value import LastValue
from perdure.channels.untracked_value import UntrackedValue
from perdure.constants import MISSING
from perdure.data import Overwrite
from perdure.graph.description import Description
from perdure.graph.schema.kinds import is_model
from perdure.graph.schema.models import ModelParts, same_field
from perdure.graph.schema.typed_dicts import adapter_of

Validate = Callable[[Any], Any]

HOLDS_ONE_VALUE: Final = (LastValue, AnyValue, EphemeralValue, UntrackedValue)
"""Channels that keep the value that was written, so that a write is validated as the field is."""


class Checks:
    """The validators of one graph.

    A key belongs to the schema that declared it first, the state's before all others. If that is a
    pydantic model, every write to the key is validated by it. Other schemas that declare the key are
    applied when a node's input is made.

    Attributes:
        graph: the description of the graph.
        validators: by state key, for the keys that belong to models.
    """

    def __init__(self, graph: Description) -> None:
        self.graph = graph
        self._parts: dict[type[BaseModel], ModelParts] = {}
        self._owners = _owners(graph)
        self.validators: dict[str, Validate] = {}
        for key, owner in self._owners.items():
            validate = self._validator(owner, key)
            if validate is not None:
                self.validators[key] = validate

    def parts_of(self, model: type[BaseModel]) -> ModelParts:
        """Take a model apart, once."""
        if model not in self._parts:
            self._parts[model] = ModelParts(model)
        return self._parts[model]

    def is_checked(self, model: type[BaseModel], key: str) -> bool:
        """Return True if the value stored at `key` was validated as this model would validate it."""
        owner = self._owners.get(key)
        return owner is not None and same_field(owner, model, key)

    def _validator(self, model: type[BaseModel], key: str) -> Validate | None:
        channel = self.graph.channels[key]
        if isinstance(channel, HOLDS_ONE_VALUE):
            return self.parts_of(model).field_validator(key)
        if isinstance(channel, BinaryOperatorAggregate):
            return _of_elements(channel, self.parts_of(model).field_validator(key))
        return None

    def model_of(self, model: type[BaseModel]) -> Validate:
        """Make the function that builds a node's input from the state, without validating anything twice."""
        parts = self.parts_of(model)
        cells = self.graph.schemas[model]
        replaced: dict[str, CoreSchema] = {}
        for key in parts.fields:
            unchecked = parts.unchecked(key)
            if key in self.graph.managed:
                replaced[key] = any_schema()
            elif unchecked is not None and (
                self.is_checked(model, key) or not isinstance(cells[key], HOLDS_ONE_VALUE)
            ):
                replaced[key] = unchecked
        return parts.whole(replaced).validate_python


def _owners(graph: Description) -> dict[str, type[BaseModel]]:
    """Return the model that each key belongs to, for the keys that belong to one."""
    owners: dict[str, type[BaseModel]] = {}
    seen: set[str] = set()
    for schema, cells in graph.schemas.items():
        if is_model(schema):
            owners.update((key, schema) for key in cells if key in graph.channels and key not in seen)
        seen.update(cells)
    return owners


def _of_elements(channel: BinaryOperatorAggregate[Any], whole: Validate) -> Validate:
    """Make the validator of writes to a reduced key.

    A write is validated as the reducer's second parameter says; an Overwrite as the field says.
    """
    element = _right_hand(channel)

    def validate(value: Any) -> Any:
        replacement = unwrap_overwrite(value)
        if replacement is not MISSING:
            return Overwrite(whole(replacement))
        return value if element is None else element(value)

    return validate


def _right_hand(channel: BinaryOperatorAggregate[Any]) -> Validate | None:
    """Make the validator of a reducer's right-hand side; None if its annotation says nothing.

    The functions of `operator` have no annotations; they combine two values of the field's type.
    """
    hint = _right_hint(channel)
    if hint in (inspect.Parameter.empty, Any):
        return None
    try:
        return adapter_of(hint).validate_python
    except (PydanticUserError, NameError):  # an annotation for type checkers alone
        return None


def _right_hint(channel: BinaryOperatorAggregate[Any]) -> Any:
    if getattr(channel.operator, "__module__", None) == "_operator":
        return channel.typ
    try:
        signature = inspect.signature(channel.operator, eval_str=True)
    except (NameError, TypeError, ValueError, AttributeError, SyntaxError):
        return Any  # a builtin that does not tell, or annotations for type checkers alone
    positional = [p for p in signature.parameters.values() if p.kind is not p.KEYWORD_ONLY]
    return positional[min(1, len(positional) - 1)].annotation
