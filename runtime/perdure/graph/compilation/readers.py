"""Readers: they make the inputs of nodes and paths from the state. Contexts are made likewise."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from perdure.constants import ROOT
from perdure.graph.compilation.validation import Checks
from perdure.graph.description import Description
from perdure.graph.schema.kinds import Kind, class_of, kind_of, name_of_schema
from perdure.pregel.plan.plan import InputReader
from perdure.pregel.step.failures import add_note


def readers_of(checks: Checks) -> dict[object, InputReader | None]:
    """Make a reader for each schema of a graph."""
    return {schema: reader_of(checks, schema) for schema in checks.graph.schemas}


def reader_of(checks: Checks, schema: Any) -> InputReader | None:
    """Make the reader for inputs of this schema; None if they are the whole state as a dict."""
    graph = checks.graph
    kind, cells = kind_of(schema), graph.schemas[schema]
    if kind is Kind.BARE:
        return InputReader(bare=ROOT)
    managed = tuple((key, graph.managed[key]) for key in cells if key in graph.managed)
    keys = None if graph.channels.keys() <= cells.keys() else tuple(k for k in cells if k in graph.channels)
    if kind is Kind.MAPPING:
        return None if keys is None and not managed else InputReader(keys=keys, managed=managed)
    build = checks.model_of(schema) if kind is Kind.MODEL else _constructor(schema)
    return InputReader(keys=keys, managed=managed, build=build)


def _constructor(schema: object) -> Callable[[dict[str, Any]], Any]:
    cls = class_of(schema)

    def build(given: dict[str, Any]) -> Any:
        return cls(**given)

    return build


def output_of(graph: Description) -> str | tuple[str, ...]:
    """Return the keys of a result; a single name, if the result is a bare value."""
    keys = tuple(key for key in graph.schemas[graph.output_schema] if key in graph.channels)
    return ROOT if keys == (ROOT,) else keys


def context_of(schema: object) -> Callable[[Any], Any] | None:
    """Make the function that turns a mapping into a context of the schema.

    Return None where the context is taken as it is given: the schema is no dataclass and no model.
    """
    cls = class_of(schema)
    if not isinstance(cls, type) or not (issubclass(cls, BaseModel) or dataclasses.is_dataclass(cls)):
        return None

    def make(given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        try:
            return cls(**given)
        except Exception as error:
            add_note(error, f"While making a {name_of_schema(schema)} of the context that was given")
            raise

    return make
