"""Checks of edges: each leads from a node to a node."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.constants import END, START, join_channel
from perdure.errors import GraphValidationError
from perdure.graph.description import Description
from perdure.pregel.plan.names import nearest


def check_graph(graph: Description) -> None:
    """Refuse a graph with an edge from or to an unknown node. Nodes that nothing leads to are allowed."""
    _check_starts(graph)
    _check_ends(graph)
    _check_joins(graph)


def _check_starts(graph: Description) -> None:
    sources = {start for start, _ in graph.edges} | graph.branches.keys()
    for source in sorted(sources - {START, *graph.nodes}):
        raise GraphValidationError(
            f"Found edge starting at unknown node '{source}'." + nearest(source, graph.nodes)
        )
    if START not in sources:
        raise GraphValidationError(
            "Graph must have an entrypoint: add at least one edge from START to another node"
        )


def _check_ends(graph: Description) -> None:
    for start, end in sorted(graph.edges | graph.waiting_edges, key=str):
        if end != END and end not in graph.nodes:
            raise GraphValidationError(
                f"Found edge ending at unknown node `{end}`, which {start!r} leads to."
                + nearest(end, graph.nodes)
            )
    for source, branches in graph.branches.items():
        for branch in branches.values():
            for target in (branch.ends or {}).values():
                if target != END and target not in graph.nodes:
                    raise GraphValidationError(
                        f"At '{source}' node, '{branch.name}' branch found unknown target '{target}'."
                        + nearest(target, graph.nodes)
                    )


def _check_joins(graph: Description) -> None:
    """Refuse two joins that would share a channel, whose name is made of the names of their starts."""
    known: dict[str, tuple[str, ...]] = {}
    for starts, end in sorted(graph.waiting_edges):
        other = known.setdefault(join_channel(starts, end), starts)
        if other != starts:
            raise GraphValidationError(
                f"The joins of {other} and of {starts} would share the channel "
                f"{join_channel(starts, end)!r}. Rename a node whose name has a '+'."
            )


def check_edge(graph: Description, start: str | Sequence[str], end: str) -> None:
    """Refuse an edge that stays wrong whatever else is added to the graph."""
    _check_end(start, end)
    if end == START:
        raise GraphValidationError("START cannot be an end node")
    if isinstance(start, str):
        if start == END:
            raise GraphValidationError("END cannot be a start node")
        return
    if not isinstance(start, Sequence):
        raise GraphValidationError(f"An edge starts at a node's name, or at a list of names; got {start!r}.")
    if not start:
        raise GraphValidationError(
            f"An edge needs at least one node to start from, but the edge to {end!r} has none."
        )
    for name in (*start, *(() if end == END else (end,))):
        if name == END:
            raise GraphValidationError("END cannot be a start node")
        if name not in graph.nodes:
            hint = ": a join waits for nodes, and START is none. Leave it out." if name == START else ""
            raise GraphValidationError(f"Need to add_node `{name}` first{hint}")


def _check_end(start: object, end: object) -> None:
    """Refuse an end that is not a name, such as a list of names or the function itself."""
    if isinstance(end, str):
        return
    if isinstance(end, list | tuple | set | frozenset):
        raise GraphValidationError(
            f"An edge ends at one node, but the edge from {start!r} ends at {end!r}. Call add_edge once for "
            "each."
        )
    raise GraphValidationError(f"An edge ends at a node's name, but the edge from {start!r} ends at {end!r}.")
