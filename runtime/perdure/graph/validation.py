"""What is checked when it is written to a state that pydantic models declare, and how."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

from pydantic import BaseModel, PydanticUserError, ValidationError
from pydantic_core import CoreSchema, SchemaValidator
from pydantic_core.core_schema import (
    any_schema,
    no_info_plain_validator_function,
    with_default_schema,
)

from perdure.channels.any_value import AnyValue
from perdure.channels.base import BaseChannel
from perdure.channels.binop import BinaryOperatorAggregate, unwrap_overwrite
from perdure.channels.ephemeral_value import EphemeralValue
from perdure.channels.last_value import LastValue
from perdure.channels.untracked_value import UntrackedValue
from perdure.constants import MISSING
from perdure.data import Overwrite
from perdure.graph.description import Description
from perdure.graph.models import ModelParts, same_field
from perdure.graph.schema import Kind, kind_of
from perdure.graph.typed_dicts import adapter_of
from perdure.pregel.objects import mapping_of

Validate = Callable[[Any], Any]

_HOLDS_ONE_VALUE: Final = (LastValue, AnyValue, EphemeralValue, UntrackedValue)


class Checks:
    """The validators of one graph.

    A key belongs to the schema that declared it first, the state's before all others. Where that is a
    pydantic model, whoever writes the key has the value validated; what other schemas say of it is
    checked when an input is made of it.

    Attributes:
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
        if model not in self._parts:
            self._parts[model] = ModelParts(model)
        return self._parts[model]

    def is_checked(self, model: type[BaseModel], key: str) -> bool:
        """Whether what is stored at `key` is already what this model would make of it."""
        owner = self._owners.get(key)
        return owner is not None and same_field(owner, model, key)

    def _validator(self, model: type[BaseModel], key: str) -> Validate | None:
        channel = self.graph.channels[key]
        if isinstance(channel, _HOLDS_ONE_VALUE):
            return self.parts_of(model).field_validator(key)
        if isinstance(channel, BinaryOperatorAggregate):
            return _of_elements(channel, self.parts_of(model).field_validator(key))
        return None

    def model_of(self, model: type[BaseModel]) -> Validate:
        """What makes a node's input of the values there are; those that are valid are not checked again."""
        parts = self.parts_of(model)
        cells = self.graph.schemas[model]
        replaced: dict[str, CoreSchema] = {}
        for key in parts.fields:
            unchecked = parts.unchecked(key)
            if key in self.graph.managed:
                replaced[key] = any_schema()
            elif unchecked is not None and (
                self.is_checked(model, key) or not isinstance(cells[key], _HOLDS_ONE_VALUE)
            ):
                replaced[key] = unchecked
        return parts.whole(replaced).validate_python


def _owners(graph: Description) -> dict[str, type[BaseModel]]:
    """The keys that belong to models, each with its model."""
    owners: dict[str, type[BaseModel]] = {}
    seen: set[str] = set()
    for schema, cells in graph.schemas.items():
        if kind_of(schema) is Kind.MODEL:
            owners.update((key, schema) for key in cells if key in graph.channels and key not in seen)
        seen.update(cells)
    return owners


def _of_elements(channel: BinaryOperatorAggregate[Any], whole: Validate) -> Validate:
    """What checks a write to a reduced key: as the reducer wants it, or, to overwrite, as the field does."""
    element = _right_hand(channel)

    def validate(value: Any) -> Any:
        replacement = unwrap_overwrite(value)
        if replacement is not MISSING:
            return Overwrite(whole(replacement))
        return value if element is None else element(value)

    return validate


def _right_hand(channel: BinaryOperatorAggregate[Any]) -> Validate | None:
    """The validator of what a reducer is given to add; None if nothing is said about it.

    The functions of `operator` are annotated with nothing, but put together two values of one type.
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


# What a graph is invoked with


class ModelInput:
    """Checks a whole input, once, by the model that declares it; only what was set is written.

    An input to a thread may leave out what the thread has already. One that lacks a field that the model
    requires is checked field by field, and model validators wait until a node reads the state.
    """

    __slots__ = ("_aliases", "_fields", "_graph", "_keeps_unknown", "_validators", "_whole")

    def __init__(self, graph: str, checks: Checks, model: type[BaseModel]) -> None:
        parts = checks.parts_of(model)
        description = checks.graph
        self._graph = graph
        self._fields = [key for key in parts.fields if key in description.channels]
        self._validators: dict[str, Validate] = {}
        replaced: dict[str, CoreSchema] = {}
        for key in parts.fields:
            channel = description.channels.get(key)
            if channel is None:  # a managed value
                replaced[key] = with_default_schema(any_schema(), default=None)
            elif isinstance(channel, _HOLDS_ONE_VALUE):
                self._validators[key] = parts.field_validator(key)
            else:
                self._validators[key] = checks.validators.get(key, _as_it_is)
                replaced[key] = _incoming(channel, self._validators[key], parts.fields[key])
        self._whole: SchemaValidator = parts.whole(replaced)
        self._aliases = _aliases(model)
        decorators = model.__pydantic_decorators__.model_validators.values()
        transformed = any(decorator.info.mode in ("before", "wrap") for decorator in decorators)
        self._keeps_unknown = not transformed and model.model_config.get("extra") != "allow"

    def __call__(self, given: Any) -> Mapping[str, Any]:
        named = {self._aliases.get(key, key): value for key, value in mapping_of(self._graph, given).items()}
        unknown = {key: value for key, value in named.items() if key not in self._fields}
        try:
            checked = self._checked(named)
        except Exception as error:
            error.add_note(f"While validating the input of graph {self._graph!r}")
            raise
        # An unknown key goes on, so that who reads it can say which key is the nearest.
        return {**checked, **unknown} if self._keeps_unknown else checked

    def _checked(self, named: dict[str, Any]) -> dict[str, Any]:
        try:
            model = self._whole.validate_python(named)
        except ValidationError as error:
            if not _only_lacks(error):
                raise
            return {key: self._validators[key](named[key]) for key in self._fields if key in named}
        set_ = model.model_fields_set
        return {key: getattr(model, key) for key in self._fields if key in set_}


def _as_it_is(value: Any) -> Any:
    return value


def _incoming(channel: BaseChannel[Any, Any], validate: Validate, field: dict[str, Any]) -> CoreSchema:
    """The schema of a field in an input that is reduced into what there is."""
    schema: CoreSchema = no_info_plain_validator_function(validate)
    if field["schema"]["type"] != "default" and channel.is_available():
        return with_default_schema(schema, default_factory=channel.get)
    return schema


def _aliases(model: type[BaseModel]) -> dict[str, str]:
    names = ((field.validation_alias, name) for name, field in model.model_fields.items())
    return {alias: name for alias, name in names if isinstance(alias, str)}


def _only_lacks(error: ValidationError) -> bool:
    """Whether nothing is wrong with an input but that fields of the model are not in it."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return all(each["type"] == "missing" and len(each["loc"]) == 1 for each in found)


def checked_input(graph: str, checks: Checks, model: type[BaseModel] | None) -> Validate | None:
    """What checks an input by its model, and by the models that its keys belong to; None: nothing does."""
    accept = None if model is None else ModelInput(graph, checks, model)
    others = {
        key: validate
        for key, validate in checks.validators.items()
        if key in checks.graph.schemas[checks.graph.input_schema]
        and (model is None or not checks.is_checked(model, key))
        and (model is None or isinstance(checks.graph.channels[key], _HOLDS_ONE_VALUE))
    }
    if not others:
        return accept

    def check(given: Any) -> Mapping[str, Any]:
        checked = dict(mapping_of(graph, given) if accept is None else accept(given))
        for key in others.keys() & checked.keys():
            try:
                checked[key] = others[key](checked[key])
            except Exception as error:
                error.add_note(f"While validating state key {key!r} in the input of graph {graph!r}")
                raise
        return checked

    return check
