"""Drawings of a graph from its description and its plan; nothing is run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from perdure.constants import END, START
from perdure.graph.description import Description, StateBranch, StateNode
from perdure.graph.drawing.elements import Edge, Node, in_order
from perdure.graph.drawing.model import Graph
from perdure.pregel.plan.names import EVERY_NODE
from perdure.pregel.plan.plan import NodeSpec, Plan

Nodes = Sequence[str] | Literal["*"]
"""Names of nodes; "*": all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """The parts of a description that a drawing shows, as they were when the graph was compiled."""

    nodes: Mapping[str, StateNode]
    edges: frozenset[tuple[str, str]]
    joins: frozenset[tuple[tuple[str, ...], str]]
    branches: Mapping[str, tuple[StateBranch, ...]]
    input_schema: object
    output_schema: object


def outline_of(description: Description) -> Outline:
    """Take the outline of a description; what is added to the description later is not in it."""
    return Outline(
        nodes=dict(description.nodes),
        edges=frozenset(description.edges),
        joins=frozenset(description.waiting_edges),
        branches={source: tuple(each.values()) for source, each in description.branches.items()},
        input_schema=description.input_schema,
        output_schema=description.output_schema,
    )


def static_graph(plan: Plan, outline: Outline, *, before: Nodes = (), after: Nodes = ()) -> Graph:
    """Draw a graph.

    Args:
        before, after: the nodes at which a run pauses.
    """
    names = [name for name in plan.nodes if name != START]
    edges = in_order(_edges(plan, outline, names))
    nodes = {START: Node(START, START, outline.input_schema)}
    for name in names:
        node = _node(plan.nodes[name], outline.nodes.get(name))
        pauses = [when for when, where in (("before", before), ("after", after)) if _holds(where, name)]
        more = {"__interrupt": ",".join(pauses)} if pauses else {}
        nodes[name] = replace(node, metadata={**node.metadata, **more})
    if any(edge.target == END for edge in edges):
        nodes[END] = Node(END, END, outline.output_schema)
    return Graph(nodes, edges)


def _holds(nodes: Nodes, name: str) -> bool:
    return nodes == EVERY_NODE or name in nodes


def _node(spec: NodeSpec, described: StateNode | None) -> Node:
    """Make a node, from its description if it has one: some error handlers are only in the plan."""
    if described is None:
        return Node(spec.name, spec.name, spec.action, dict(spec.metadata))
    metadata = {**described.metadata, **({"defer": True} if described.defer else {})}
    data = described.action if described.subgraph is None else described.subgraph
    return Node(spec.name, spec.name, data, metadata)


def _edges(plan: Plan, outline: Outline, names: Sequence[str]) -> Iterator[Edge]:
    handlers = {
        name: spec.policies.handler
        for name, spec in plan.nodes.items()
        if spec.policies is not None and spec.policies.handler is not None
    }
    routable = [name for name in names if name not in handlers.values()]
    flow = [*_static_edges(outline), *_routes(outline, [*routable, END])]
    yield from flow
    sources = {edge.source for edge in flow}
    yield from (Edge(name, END) for name in names if name not in sources)
    yield from (Edge(name, handler, "error", True) for name, handler in handlers.items())


def _static_edges(outline: Outline) -> Iterator[Edge]:
    for source, target in outline.edges:
        yield Edge(source, target)
    for sources, target in outline.joins:
        yield from (Edge(source, target) for source in sources)


def _routes(outline: Outline, everywhere: Sequence[str]) -> Iterator[Edge]:
    """Yield the edges of conditional edges and of declared destinations."""
    for source, branches in outline.branches.items():
        for branch in branches:
            ends = {end: end for end in everywhere} if branch.ends is None else branch.ends
            yield from (_route(source, target, str(key)) for key, target in ends.items())
    for source, node in outline.nodes.items():
        for target, label in (node.destinations or {}).items():
            yield _route(source, target, label)


def _route(source: str, target: str, label: str | None) -> Edge:
    return Edge(source, target, None if label == target else label, True)
