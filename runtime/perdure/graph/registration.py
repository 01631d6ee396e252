"""Registration of schemas: their keys become part of a graph's state."""

from __future__ import annotations

import warnings
from typing import TypeVar, get_origin

from typing_extensions import TypeAliasType

from perdure.channels.base import BaseChannel
from perdure.channels.last_value import LastValue
from perdure.constants import ROOT
from perdure.errors import GraphValidationError, PerdureWarning
from perdure.graph.description import Description
from perdure.graph.schema.declaration import Schema, check_schema, schema_of
from perdure.graph.schema.kinds import name_of_schema
from perdure.managed import ManagedValue


def register_schemas(graph: Description) -> None:
    """Register the schemas that a StateGraph is made with, that of the state before all others."""
    register(graph, graph.state_schema)
    register(graph, graph.input_schema, managed=False)
    register(graph, graph.output_schema, managed=False)


def register(graph: Description, schema: object, *, managed: bool = True) -> None:
    """Make the keys of a schema part of the state, once.

    A key that another schema declared keeps its channel, if this schema says nothing of how it is kept.

    Args:
        managed: whether it may declare managed values.

    Raises:
        GraphValidationError: it cannot be a schema, or contradicts those that were registered before.
    """
    check_schema(schema)
    if schema in graph.schemas:
        return
    declared = schema_of(schema)
    _check_declared(graph, schema, declared, managed)
    for key, channel in declared.channels.items():
        _add_channel(graph, key, channel)
    for key, value in declared.managed.items():
        _add_managed(graph, key, value)
    graph.schemas[schema] = {**declared.channels, **declared.managed}


def _check_declared(graph: Description, schema: object, declared: Schema, managed: bool) -> None:
    if ROOT in declared.channels and graph.channels and ROOT not in graph.channels:
        raise GraphValidationError(
            f"{name_of_schema(schema)} is the type of a bare value, but the state of this graph has keys. "
            "Use a schema with keys."
        )
    if declared.managed and not managed:
        raise GraphValidationError(
            f"Invalid managed channels detected in {name_of_schema(schema)}: "
            f"{', '.join(declared.managed)}. Managed channels are not permitted in Input/Output schema."
        )


def _add_channel(graph: Description, key: str, channel: BaseChannel) -> None:
    plain = type(channel) is LastValue
    if key in graph.managed and plain:
        return
    known = graph.managed.get(key) or graph.channels.setdefault(key, channel)
    if known != channel and not plain:
        raise GraphValidationError(f"Channel {key!r} already exists with a different type.")


def _add_managed(graph: Description, key: str, value: type[ManagedValue]) -> None:
    known = graph.channels.get(key) or graph.managed.setdefault(key, value)
    if known is not value:
        raise GraphValidationError(f"Managed value {key!r} already exists with a different type.")


def warn_if_no_type(schema: object) -> None:
    """Warn of a state schema that is no type, on behalf of StateGraph's constructor."""
    if isinstance(schema, type | TypeAliasType | TypeVar) or get_origin(schema) is not None:
        return
    warnings.warn(
        f"Invalid state_schema: {schema!r}. Expected a type or Annotated[type, reducer]. What a run is "
        "called with is taken as the whole state.",
        PerdureWarning,
        stacklevel=3,
    )
