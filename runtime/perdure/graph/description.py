"""A graph as described, before it is compiled."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from perdure.channels.base import BaseChannel
from perdure.channels.last_value import LastValue
from perdure.constants import ROOT
from perdure.data import CachePolicy, RetryPolicy, TimeoutPolicy
from perdure.errors import GraphValidationError
from perdure.graph.schema.fields import Cell
from perdure.graph.schema.kinds import check_schema, name_of_schema, schema_of
from perdure.managed import ManagedValue
from perdure.pregel.plan.plan import Calling, Injected


@dataclass(frozen=True, slots=True, kw_only=True)
class StateNode:
    """A node as described.

    Attributes:
        action: called with the node's input, and with the parameters that `injects` names.
        input_schema: what its input is made as.
        destinations: where it declares to go, beside its edges, with the labels to draw; None: it does
            not say.
        retry_policy, cache_policy, timeout, error_handler: None leaves it to the graph's defaults.
        subgraph: the compiled graph that the node is, if it is one.
    """

    action: Callable[..., Any]
    calling: Calling
    input_schema: Any = None
    injects: tuple[tuple[str, Injected], ...] = ()
    defer: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    destinations: Mapping[str, str | None] | None = None
    retry_policy: tuple[RetryPolicy, ...] | None = None
    cache_policy: CachePolicy | None = None
    timeout: TimeoutPolicy | None = None
    error_handler: str | None = None
    subgraph: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDefaults:
    """What holds for nodes that do not say otherwise; see StateNode."""

    retry_policy: tuple[RetryPolicy, ...] | None = None
    cache_policy: CachePolicy | None = None
    timeout: TimeoutPolicy | None = None
    error_handler: str | None = None

    def over(self, earlier: NodeDefaults) -> NodeDefaults:
        """These, and the earlier ones where these say nothing."""
        said = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(earlier, **{name: value for name, value in said.items() if value is not None})


@dataclass(frozen=True, slots=True, kw_only=True)
class StateBranch:
    """A conditional edge as described.

    Attributes:
        ends: what the path returns to the node meant; None if it returns names of nodes, any of them.
        input_schema: what the path's input is made as; None: what the source node's is.
        several: whether the path declares that it returns a list.
    """

    name: str
    path: Callable[..., Any]
    ends: Mapping[Hashable, str] | None = None
    input_schema: Any = None
    several: bool = False
    injects: tuple[tuple[str, Injected], ...] = ()


class Description:
    """What a builder holds; see StateGraph."""

    def __init__(
        self, state_schema: Any, *, context_schema: Any, input_schema: Any, output_schema: Any
    ) -> None:
        self.state_schema = state_schema
        self.context_schema = context_schema
        self.input_schema = state_schema if input_schema is None else input_schema
        self.output_schema = state_schema if output_schema is None else output_schema
        self.nodes: dict[str, StateNode] = {}
        self.edges: set[tuple[str, str]] = set()
        self.waiting_edges: set[tuple[tuple[str, ...], str]] = set()
        self.branches: dict[str, dict[str, StateBranch]] = {}
        self.channels: dict[str, BaseChannel[Any, Any]] = {}
        self.managed: dict[str, type[ManagedValue]] = {}
        self.defaults = NodeDefaults()
        self.schemas: dict[Any, dict[str, Cell]] = {}
        self._register(state_schema)
        self._register(self.input_schema, managed=False)
        self._register(self.output_schema, managed=False)

    def _register(self, schema: Any, *, managed: bool = True) -> None:
        """Make the keys of a schema part of the state, once. Its own channels give way to what is declared.

        Args:
            managed: whether it may declare managed values.
        """
        check_schema(schema)
        if schema in self.schemas:
            return
        declared = schema_of(schema)
        if ROOT in declared.channels and self.channels and ROOT not in self.channels:
            raise GraphValidationError(
                f"{name_of_schema(schema)} is the type of a bare value, but the state of this graph has "
                "keys: a node with it would have nothing to read. Give the schema keys."
            )
        if declared.managed and not managed:
            raise GraphValidationError(
                f"Invalid managed channels detected in {name_of_schema(schema)}: "
                f"{', '.join(declared.managed)}. Managed channels are not permitted in Input/Output schema."
            )
        for key, channel in declared.channels.items():
            self._declare(key, channel)
        for key, value in declared.managed.items():
            self._declare_managed(key, value)
        self.schemas[schema] = {**declared.channels, **declared.managed}

    def _declare(self, key: str, channel: BaseChannel[Any, Any]) -> None:
        plain = type(channel) is LastValue
        if key in self.managed and plain:
            return
        known = self.managed.get(key) or self.channels.setdefault(key, channel)
        if known != channel and not plain:
            raise GraphValidationError(f"Channel {key!r} already exists with a different type.")

    def _declare_managed(self, key: str, value: type[ManagedValue]) -> None:
        known = self.channels.get(key) or self.managed.setdefault(key, value)
        if known is not value:
            raise GraphValidationError(f"Managed value {key!r} already exists with a different type.")
