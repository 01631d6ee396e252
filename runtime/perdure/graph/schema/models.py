"""Pydantic models, taken apart: fields are validated one by one, and models are built of valid values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from pydantic import BaseModel
from pydantic_core import CoreSchema, SchemaValidator
from pydantic_core.core_schema import (
    any_schema,
    definitions_schema,
    no_info_wrap_validator_function,
)

from perdure.errors import GraphValidationError
from perdure.graph.schema.kinds import fields_of

Part = dict[str, Any]
"""A piece of a core schema, which is a plain dict; its types are many."""

_AROUND = ("function-before", "function-after", "function-wrap")


class ModelParts:
    """A model's core schema, from which validators for parts of the model are made.

    A core schema is nested dicts: model validators around the model, the model around its fields, and each
    field around its own validators.

    Attributes:
        model: the model.
        fields: the core schemas of its fields, by name.
    """

    def __init__(self, model: type[BaseModel]) -> None:
        fields_of(model)  # completes it
        top = cast("Part", model.__pydantic_core_schema__)
        self.model = model
        self._definitions: list[CoreSchema] = top["definitions"] if top["type"] == "definitions" else []
        self._top: Part = top["schema"] if top["type"] == "definitions" else top
        self._config: Part = {}
        self._model_fields = self._find(self._top)
        self.fields: dict[str, Part] = self._model_fields["fields"]

    def _resolved(self, part: Part) -> Part:
        while part["type"] == "definition-ref":
            part = next(
                cast("Part", d) for d in self._definitions if cast("Part", d).get("ref") == part["schema_ref"]
            )
        return part

    def _find(self, part: Part) -> Part:
        """Return the part that holds the fields.

        Raises GraphValidationError if the model has a core schema of its own making.
        """
        part = self._resolved(part)
        if part["type"] == "model-fields":
            return part
        if part["type"] == "model":
            self._config = part.get("config", {})
        elif part["type"] not in _AROUND:
            raise GraphValidationError(
                f"The pydantic model {self.model.__name__} makes a core schema of its own, {part['type']!r}, "
                "in which its fields cannot be found. Use a model without __get_pydantic_core_schema__."
            )
        return self._find(part["schema"])

    def field_validator(self, name: str) -> Callable[[Any], Any]:
        """Make the function that validates a value of one field, its field validators included."""
        field = {key: value for key, value in self.fields[name].items() if key != "frozen"}
        validator = self._made({**self._model_fields, "fields": {name: field}}, self._config)

        def validate(value: Any) -> Any:
            fields: Any = validator.validate_assignment({}, name, value)
            return fields[0][name]

        return validate

    def whole(self, replaced: Mapping[str, CoreSchema]) -> SchemaValidator:
        """Make a validator of the whole model, with other core schemas for some of its fields.

        It takes fields by their names, not their aliases. Defaults and model validators stay.
        """
        fields = {name: self._with_schema(field, replaced.get(name)) for name, field in self.fields.items()}
        return self._made(self._rebuilt(self._top, fields), self._config)

    def _with_schema(self, field: Part, schema: CoreSchema | None) -> Part:
        field = {key: value for key, value in field.items() if key != "validation_alias"}
        if schema is None:
            return field
        default = field["schema"] if field["schema"]["type"] == "default" else None
        if default is None or cast("Part", schema)["type"] == "default":
            return {**field, "schema": schema}
        return {**field, "schema": {**default, "schema": schema}}

    def _rebuilt(self, part: Part, fields: dict[str, Part]) -> Part:
        part = {key: value for key, value in self._resolved(part).items() if key != "ref"}
        if part["type"] == "model-fields":
            return {**part, "fields": fields}
        if part["type"] == "model":
            # Not as a part of the type "model": for a class that is complete, pydantic uses the validator
            # that the class has, and ignores the fields given here.
            inner = self._rebuilt(part["schema"], fields)
            return cast("Part", no_info_wrap_validator_function(self._instance, cast("CoreSchema", inner)))
        return {**part, "schema": self._rebuilt(part["schema"], fields)}

    def _instance(self, given: Any, validate_fields: Callable[[Any], Any]) -> BaseModel:
        """Make an instance of the validated fields, as pydantic's own validators do."""
        if isinstance(given, self.model):  # a model validator has made it
            return given
        fields, extra, fields_set = validate_fields(given)
        instance = self.model.__new__(self.model)
        object.__setattr__(instance, "__dict__", fields)
        object.__setattr__(instance, "__pydantic_fields_set__", fields_set)
        object.__setattr__(instance, "__pydantic_extra__", extra)
        object.__setattr__(instance, "__pydantic_private__", None)
        if self.model.__pydantic_post_init__:
            instance.model_post_init(None)
        return instance

    def _made(self, part: Part, config: Part) -> SchemaValidator:
        schema = cast("CoreSchema", part)
        if self._definitions:
            schema = definitions_schema(schema, self._definitions)
        return SchemaValidator(schema, cast("Any", config))

    def unchecked(self, name: str) -> CoreSchema | None:
        """Return a core schema that accepts any value of a field; None if its default has to be validated."""
        schema = self.fields[name]["schema"]
        validates_default = schema.get("validate_default", self._config.get("validate_default", False))
        return None if schema["type"] == "default" and validates_default else any_schema()


def same_field(one: type[BaseModel], other: type[BaseModel], name: str) -> bool:
    """Return True if two models validate a field in the same way, as when one is derived from the other."""
    fields = [model.model_fields.get(name) for model in (one, other)]
    if one is other:
        return True
    if fields[0] is None or fields[1] is None or _validators(one, name) != _validators(other, name):
        return False
    return fields[0].annotation == fields[1].annotation and fields[0].metadata == fields[1].metadata


def _validators(model: type[BaseModel], name: str) -> set[Any]:
    """Return the functions that validate a field."""
    return {
        getattr(decorator.func, "__func__", decorator.func)
        for decorator in model.__pydantic_decorators__.field_validators.values()
        if name in decorator.info.fields or "*" in decorator.info.fields
    }
