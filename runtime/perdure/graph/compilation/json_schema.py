"""The JSON schemas of a graph's input, output and context."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from pydantic import BaseModel, Field, create_model
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, JsonSchemaWarningKind
from pydantic_core import CoreSchema

from perdure.constants import ROOT
from perdure.errors import GraphValidationError
from perdure.graph.description import Description
from perdure.graph.schema.declaration import schema_of
from perdure.graph.schema.kinds import Kind, class_of, is_typed_dict, kind_of
from perdure.graph.schema.typed_dicts import LENIENT, adapter_of, made_over
from perdure.pregel.plan.plan import Described


class _AnythingGoes(GenerateJsonSchema):
    """A generator that describes whatever JSON has no word for, such as a class, as anything."""

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """Leave out a default that JSON cannot express; the key is still shown as not required."""

    def handle_invalid_for_json_schema(self, schema: CoreSchema, error_info: str) -> JsonSchemaValue:
        return {}


def schema_maker(graph: Description, name: str) -> Callable[[Described], JsonSchemaValue | None]:
    """Make the function that returns the JSON schemas of a graph, as it is described now."""
    schemas = (graph.input_schema, graph.output_schema, graph.context_schema)
    return partial(_json_schema, *schemas, name)


def _json_schema(
    given: object, returned: object, context: object, name: str, what: Described
) -> JsonSchemaValue | None:
    match what:
        case "input":
            return state_json_schema(given, f"{name}Input")
        case "output":
            return state_json_schema(returned, f"{name}Output")
        case "context":
            return None if context is None else context_json_schema(context)


def state_json_schema(schema: Any, title: str) -> JsonSchemaValue:
    """Return the JSON schema of a state's schema.

    Args:
        title: the title of a schema that has no name of its own.
    """
    kind, declared = kind_of(schema), schema_of(schema)
    if kind is Kind.MODEL:
        return _without(_of_model(schema), declared.managed)
    if is_typed_dict(schema):
        made = adapter_of(schema).json_schema(schema_generator=_AnythingGoes)
        return _without(made, declared.managed)
    channels = declared.channels
    if kind is Kind.BARE:
        made = adapter_of(channels[ROOT].typ).json_schema(schema_generator=_AnythingGoes)
        return {"title": title, **made}
    defaults = _defaults(schema)
    fields: dict[str, Any] = {
        key: (made_over(channel.typ), defaults.get(key, ...)) for key, channel in channels.items()
    }
    return _of_model(create_model(title, __config__=LENIENT, **fields))


def context_json_schema(schema: Any) -> JsonSchemaValue:
    """Return the JSON schema of a context: a pydantic model, a TypedDict or a dataclass.

    Raises GraphValidationError for any other schema.
    """
    cls = class_of(schema)
    if isinstance(cls, type) and issubclass(cls, BaseModel):
        return _of_model(schema)
    if is_typed_dict(schema) or dataclasses.is_dataclass(cls):
        return adapter_of(schema).json_schema(schema_generator=_AnythingGoes)
    raise GraphValidationError(
        f"Invalid context schema type: {schema!r}. Expected a pydantic model, a TypedDict or a dataclass."
    )


def _without(schema: JsonSchemaValue, keys: Iterable[str]) -> JsonSchemaValue:
    """Remove managed values, which nobody writes, from a JSON schema."""
    for key in keys:
        schema["properties"].pop(key, None)
        if key in schema.get("required", ()):
            schema["required"].remove(key)
    return schema


def _of_model(model: type[BaseModel]) -> JsonSchemaValue:
    return model.model_json_schema(schema_generator=_AnythingGoes)


def _defaults(schema: object) -> dict[str, Any]:
    """Return the defaults of a dataclass; of any other class, the values of its annotated attributes."""
    cls = class_of(schema)
    if not dataclasses.is_dataclass(cls):
        return {key: getattr(cls, key) for key in schema_of(schema).channels if hasattr(cls, key)}
    defaults = {}
    for field in dataclasses.fields(cls):
        if field.default is not dataclasses.MISSING:
            defaults[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            defaults[field.name] = Field(default_factory=field.default_factory)
    return defaults
