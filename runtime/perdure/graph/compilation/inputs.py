"""Normalisation and validation of a run's input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import AliasChoices, AliasPath, BaseModel, ValidationError
from pydantic_core import CoreSchema, PydanticUndefined, SchemaValidator
from pydantic_core.core_schema import any_schema, no_info_plain_validator_function, with_default_schema

from perdure.channels.base import BaseChannel
from perdure.constants import ROOT
from perdure.graph.compilation.validation import HOLDS_ONE_VALUE, Checks, Validate
from perdure.graph.schema.kinds import Kind, is_model, kind_of
from perdure.pregel.plan.objects import mapping_of
from perdure.pregel.plan.plan import Accept
from perdure.pregel.step.failures import add_note


def accept_of(graph: str, checks: Checks) -> Accept | None:
    """Make the function that turns a graph's input into a mapping of state keys, and validates it.

    Return None if an input is such a mapping already, and nothing validates it.
    """
    schema = checks.graph.input_schema
    if kind_of(schema) is Kind.BARE:
        return _bare_input
    return _checked_input(graph, checks, schema if is_model(schema) else None)


def _bare_input(given: Any) -> Mapping[str, Any]:
    return {ROOT: given}


class ModelInput:
    """A validator of inputs that a pydantic model declares; only the fields that were set are written.

    An input is validated as a whole, once. It may leave out keys that the thread has already: if the model
    requires one of them, the input is validated field by field, and model validators wait until a node
    reads the state.
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
            elif isinstance(channel, HOLDS_ONE_VALUE):
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
        named = self._by_name(mapping_of(self._graph, given))
        unknown = {key: value for key, value in named.items() if key not in self._fields}
        try:
            checked = self._checked(named)
        except Exception as error:
            add_note(error, f"While validating the input of graph {self._graph!r}")
            raise
        # Unknown keys are passed on: the warning about them is given later, and names the nearest key.
        return {**checked, **unknown} if self._keeps_unknown else checked

    def _by_name(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return an input with its fields under their own names in place of their aliases."""
        given, named = dict(given), dict(given)
        for name, aliases in self._aliases.items():
            for alias in aliases:
                if alias.path[0] not in self._fields:
                    named.pop(str(alias.path[0]), None)
            found = (alias.search_dict_for_path(given) for alias in aliases)
            value = next((value for value in found if value is not PydanticUndefined), PydanticUndefined)
            if value is not PydanticUndefined:
                named[name] = value
        return named

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


def _incoming(channel: BaseChannel, validate: Validate, field: dict[str, Any]) -> CoreSchema:
    """Return the core schema for the input of a reduced field.

    It has the channel's value as its default, unless the field has a default of its own.
    """
    schema: CoreSchema = no_info_plain_validator_function(validate)
    if field["schema"]["type"] != "default" and channel.is_available():
        return with_default_schema(schema, default_factory=channel.get)
    return schema


def _aliases(model: type[BaseModel]) -> dict[str, tuple[AliasPath, ...]]:
    """Return the aliases under which a field may stand in an input, by field; the first one found counts."""
    aliases = {}
    for name, field in model.model_fields.items():
        alias = field.validation_alias
        if alias is not None:
            choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
            aliases[name] = tuple(AliasPath(each) if isinstance(each, str) else each for each in choices)
    return aliases


def _only_lacks(error: ValidationError) -> bool:
    """Return True if nothing is wrong with an input except that fields of the model are missing."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return all(each["type"] == "missing" and len(each["loc"]) == 1 for each in found)


def _checked_input(graph: str, checks: Checks, model: type[BaseModel] | None) -> Validate | None:
    """Make the function that validates an input by its model, and by other models that own some of its keys.

    Return None if no model does.
    """
    accept = None if model is None else ModelInput(graph, checks, model)
    others = {
        key: validate
        for key, validate in checks.validators.items()
        if key in checks.graph.schemas[checks.graph.input_schema]
        and (model is None or not checks.is_checked(model, key))
        and (model is None or isinstance(checks.graph.channels[key], HOLDS_ONE_VALUE))
    }
    if not others:
        return accept

    def check(given: Any) -> Mapping[str, Any]:
        checked = dict(mapping_of(graph, given) if accept is None else accept(given))
        for key in others.keys() & checked.keys():
            try:
                checked[key] = others[key](checked[key])
            except Exception as error:
                add_note(error, f"While validating state key {key!r} in the input of graph {graph!r}")
                raise
        return checked

    return check
