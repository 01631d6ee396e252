"""A graph as described, before it is compiled."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol

from perdure.channels.base import BaseChannel
from perdure.data import CachePolicy, RetryPolicy, TimeoutPolicy
from perdure.graph.schema.fields import Cell
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


class Description(Protocol):
    """A graph as described: what compiling it reads of a StateGraph.

    Attributes:
        channels, managed: the channels and managed values that the schemas declare, by state key.
        schemas: by schema, the channels and managed values that it declares itself.
        nodes, edges, waiting_edges, branches: what was added so far.
        defaults: the policies of nodes without their own.
    """

    state_schema: Any
    context_schema: Any
    input_schema: Any
    output_schema: Any
    channels: dict[str, BaseChannel[Any, Any]]
    managed: dict[str, type[ManagedValue]]
    schemas: dict[Any, dict[str, Cell]]
    nodes: dict[str, StateNode]
    edges: set[tuple[str, str]]
    waiting_edges: set[tuple[tuple[str, ...], str]]
    branches: dict[str, dict[str, StateBranch]]
    defaults: NodeDefaults
