"""The compiled graphs among the nodes of a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol, Self, TypeVar


class HasSubgraphs(Protocol):
    """A graph that may have compiled graphs among its nodes."""

    def get_subgraphs(
        self, namespace: str | None = None, recurse: bool = False
    ) -> Iterator[tuple[str, Self]]:
        """Yield these graphs, with the names of their nodes."""
        ...


Subgraph = TypeVar("Subgraph", bound=HasSubgraphs)


def subgraphs_of(
    graphs: Mapping[str, Subgraph], namespace: str | None, recurse: bool
) -> Iterator[tuple[str, Subgraph]]:
    """Yield graphs with their names; the name of a graph in a graph is joined to the outer one by "|".

    Args:
        graphs: the compiled graphs among a graph's nodes, by the names of the nodes.
        namespace: only the graph of this name; None: all.
        recurse: descend into these graphs as well.
    """
    for name, graph in graphs.items():
        if namespace is None or namespace == name:
            yield name, graph
        inner = None if namespace is None else namespace.removeprefix(f"{name}|")
        if recurse if namespace is None else inner != namespace:
            for below, found in graph.get_subgraphs(inner, recurse):
                yield f"{name}|{below}", found
