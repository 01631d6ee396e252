"""The compiled graphs among the nodes of a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def subgraphs_of(
    graphs: Mapping[str, Any], namespace: str | None, recurse: bool
) -> Iterator[tuple[str, Any]]:
    """Yield graphs with their names, those of a graph in a graph joined by "|".

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
