"""Expansion: subgraphs drawn in the place of the nodes that they are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol, runtime_checkable

from perdure.config import Config
from perdure.graph.drawing.elements import Node, in_order, nested_id
from perdure.graph.drawing.model import Graph
from perdure.graph.drawing.static import Outline


@runtime_checkable
class Drawable(Protocol):
    """A graph that can be drawn."""

    def get_graph(self, config: Config | None = None, *, xray: bool | int = False) -> Graph:
        """Return the graph to be drawn, its subgraphs as deep as `xray` says."""
        ...


def expand_subgraphs(graph: Graph, outline: Outline, config: Config | None, xray: bool | int) -> Graph:
    """Draw the subgraphs of a graph in place of their nodes.

    Args:
        xray: True: all that is below, however deep; a number: so many levels.
    """
    for name, node in outline.nodes.items():
        child: object = node.subgraph
        if isinstance(child, Drawable):
            below = child.get_graph(config, xray=xray if xray is True else xray - 1)
            graph = expand(graph, name, below)
    return graph


def expand(graph: Graph, name: str, child: Graph) -> Graph:
    """Draw `child` in the place of the node `name` of `graph`.

    A child that would be a single node, or that has no single node to enter it by, or to leave it by,
    stays the node that it is.
    """
    child = _trimmed(child)
    first, last = _first(child), _last(child)
    if len(child.nodes) < 2 or first is None or last is None:
        return graph
    nodes: dict[str, Node] = {}
    for node in graph.nodes.values():
        inside = child.nodes.values() if node.id == name else ()
        nodes |= {nested_id(name, each.id): replace(each, id=nested_id(name, each.id)) for each in inside}
        if node.id != name:
            nodes[node.id] = node
    outer = [
        edge._replace(
            source=nested_id(name, last) if edge.source == name else edge.source,
            target=nested_id(name, first) if edge.target == name else edge.target,
        )
        for edge in graph.edges
    ]
    inner = [
        edge._replace(source=nested_id(name, edge.source), target=nested_id(name, edge.target))
        for edge in child.edges
    ]
    return Graph(nodes, in_order([*outer, *inner]))


def _trimmed(graph: Graph) -> Graph:
    """Remove `__start__` and `__end__`, where a single node can take the place of each."""
    start = _first(graph)
    if start is not None and sum(edge.source == start for edge in graph.edges) == 1:
        smaller = _without(graph, start)
        graph = graph if _first(smaller) is None else smaller
    end = _last(graph)
    if end is not None and graph.nodes[end].is_end and sum(edge.target == end for edge in graph.edges) == 1:
        smaller = _without(graph, end)
        graph = graph if _last(smaller) is None else smaller
    return graph


def _without(graph: Graph, name: str) -> Graph:
    nodes = {each: node for each, node in graph.nodes.items() if each != name}
    return Graph(nodes, [edge for edge in graph.edges if name not in (edge.source, edge.target)])


def _first(graph: Graph) -> str | None:
    """Return the one node to which no edge leads."""
    return _only_one_outside(graph, (edge.target for edge in graph.edges))


def _last(graph: Graph) -> str | None:
    """Return the one node from which no edge leads."""
    return _only_one_outside(graph, (edge.source for edge in graph.edges))


def _only_one_outside(graph: Graph, names: Iterable[str]) -> str | None:
    outside = [*(graph.nodes.keys() - set(names))]
    return outside[0] if len(outside) == 1 else None
