"""A graph as described, before it is compiled."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol

from perdure.channels.base import BaseChannel
from perdure.data import CachePolicy, RetryPolicy, TimeoutPolicy
from perdure.graph.schema.fields import Cell
from perdure.managed import ManagedValue
from perdure.pregel.graph import Pregel
from perdure.pregel.plan.plan import Calling, Injections


@dataclass(frozen=True, slots=True, kw_only=True)
class StateNode:
    """A node as described.

    Attributes:
        action: a function of the node's input and of the parameters that `injects` names.
        calling: the way in which the action is called.
        input_schema: the schema of its input; None: the state's.
        injects: the parameters of the action that are given something else than its input.
        defer: whether it waits until nothing else is left to run.
        metadata: its user's part of the metadata in its config.
        destinations: the nodes that it declares to go to, beside its edges, with the labels to draw;
            None: it declares none.
        retry_policy, cache_policy, timeout: its policies; None: the graph's defaults.
        error_handler: the hidden node that runs in its place when it has failed; None: the graph's default.
        subgraph: the compiled graph that the node is, if it is one.
    """

    action: Callable[..., Any]
    calling: Calling
    input_schema: object = None
    injects: Injections = ()
    defer: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    destinations: Mapping[str, str | None] | None = None
    retry_policy: tuple[RetryPolicy, ...] | None = None
    cache_policy: CachePolicy | None = None
    timeout: TimeoutPolicy | None = None
    error_handler: str | None = None
    subgraph: Pregel | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDefaults:
    """The policies of nodes without their own; see StateNode."""

    retry_policy: tuple[RetryPolicy, ...] | None = None
    cache_policy: CachePolicy | None = None
    timeout: TimeoutPolicy | None = None
    error_handler: str | None = None

    def over(self, earlier: NodeDefaults) -> NodeDefaults:
        """Return these defaults, with the earlier ones in place of those that are None."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(earlier, **{name: value for name, value in given.items() if value is not None})


@dataclass(frozen=True, slots=True, kw_only=True)
class StateBranch:
    """A conditional edge as described.

    Attributes:
        path: a function of the state and of the parameters that `injects` names.
        ends: the destinations, by the values that the path returns; None: it may return any node's name.
        input_schema: the schema of the path's input; None: that of its source node.
        several: whether the path is annotated to return a list.
        injects: the parameters of the path that are given something else than the state.
    """

    name: str
    path: Callable[..., Any]
    ends: Mapping[Hashable, str] | None = None
    input_schema: object = None
    several: bool = False
    injects: Injections = ()


class Description(Protocol):
    """A graph as described: what compiling it reads of a StateGraph.

    Attributes:
        channels, managed: the channels and managed values that the schemas declare, by state key.
        schemas: by schema, the channels and managed values that it declares itself.
        nodes, edges, waiting_edges, branches: what was added so far.
        defaults: the policies of nodes without their own.
    """

    state_schema: object
    context_schema: object
    input_schema: object
    output_schema: object
    channels: dict[str, BaseChannel]
    managed: dict[str, type[ManagedValue]]
    schemas: dict[object, dict[str, Cell]]
    nodes: dict[str, StateNode]
    edges: set[tuple[str, str]]
    waiting_edges: set[tuple[tuple[str, ...], str]]
    branches: dict[str, dict[str, StateBranch]]
    defaults: NodeDefaults
