"""Whether a graph hangs together: what compile() refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

from perdure.cache.base import BaseCache
from perdure.checkpoint.base import BaseCheckpointSaver
from perdure.constants import END, RESERVED_NODE_NAMES, START, join_channel
from perdure.errors import GraphValidationError
from perdure.graph.description import Description
from perdure.pregel.plan.names import EVERY_NODE, nearest


def check_graph(graph: Description) -> None:
    """Refuse a graph with a way that begins or ends nowhere. Nodes that nothing leads to are allowed."""
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
    """Refuse two joins whose starts, written one after the other, read the same."""
    known: dict[str, tuple[str, ...]] = {}
    for starts, end in sorted(graph.waiting_edges):
        other = known.setdefault(join_channel(starts, end), starts)
        if other != starts:
            raise GraphValidationError(
                f"The joins of {other} and of {starts} would share the channel "
                f"{join_channel(starts, end)!r}. Rename a node whose name has a '+'."
            )


def check_edge(graph: Description, start: str | Sequence[str], end: str) -> None:
    """Refuse an edge that can lead nowhere, whatever else is added to the graph."""
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
            f"An edge needs at least one node to start from; that to {end!r} has none."
        )
    for name in (*start, *(() if end == END else (end,))):
        if name == END:
            raise GraphValidationError("END cannot be a start node")
        if name not in graph.nodes:
            hint = ": a join waits for nodes, and START is none. Leave it out." if name == START else ""
            raise GraphValidationError(f"Need to add_node `{name}` first{hint}")


def _check_end(start: Any, end: Any) -> None:
    """Refuse an end that is no name, such as a list of them or the function itself."""
    if isinstance(end, str):
        return
    if isinstance(end, list | tuple | set | frozenset):
        raise GraphValidationError(
            f"An edge ends at one node; that from {start!r} ends at {end!r}. Call add_edge once for each."
        )
    raise GraphValidationError(f"An edge ends at a node's name; that from {start!r} ends at {end!r}.")


def check_checkpointer(checkpointer: Any) -> None:
    """Refuse what is not a saver, False or None."""
    if isinstance(checkpointer, AbstractAsyncContextManager | AbstractContextManager) and not isinstance(
        checkpointer, BaseCheckpointSaver
    ):
        raise TypeError(
            "Invalid checkpointer provided: this is what opens one. Write `async with "
            "PostgresSaver.from_conn_string(...) as saver:` and compile with `checkpointer=saver`."
        )
    if checkpointer is True or not isinstance(checkpointer, BaseCheckpointSaver | bool | None):
        raise TypeError(
            "Invalid checkpointer provided. Expected an instance of `BaseCheckpointSaver`, `False`, or "
            f"`None`. Received {type(checkpointer).__name__}: {checkpointer!r}."
        )


def check_cache(cache: Any) -> None:
    """Refuse what is not a cache."""
    if cache is not None and not isinstance(cache, BaseCache):
        raise TypeError(
            "Invalid cache provided. Expected an instance of `BaseCache`, such as InMemoryCache(), or "
            f"`None`. Received {type(cache).__name__}: {cache!r}."
        )


def interrupt_nodes(graph: Description, said_by: str, names: Any) -> str | tuple[str, ...]:
    """The nodes at which a compiled graph interrupts: "*" for all, else names that were found to exist."""
    if names is None:
        return ()
    if isinstance(names, str):
        if names == EVERY_NODE:
            return EVERY_NODE
        raise GraphValidationError(
            f'{said_by} is a list of node names, or "*" for all; got {names!r}. Write [{names!r}].'
        )
    for name in names:
        if name not in graph.nodes:
            raise GraphValidationError(f"Interrupt node `{name}` not found")
    return tuple(names)


def check_renamed(graph: Description, renamed: Mapping[str, str]) -> None:
    """Refuse a mapping of old names to new ones that leaves open which node goes on."""
    known: dict[str, str] = {}
    for old, new in renamed.items():
        if new not in graph.nodes:
            raise GraphValidationError(
                f"compile(renamed=...) says that node {old!r} is {new!r} now, which is not a node."
                + nearest(new, graph.nodes)
            )
        if old in graph.nodes:
            raise GraphValidationError(
                f"compile(renamed=...) says that node {old!r} is {new!r} now, but the graph has a node "
                f"{old!r}: a stored thread could mean either. Map old names to what they are called at last, "
                "and give a name that stored threads still use to no other node."
            )
        if old in RESERVED_NODE_NAMES:
            raise GraphValidationError(f"compile(renamed=...) names {old!r}, which never was a node.")
        other = known.setdefault(new, old)
        if other != old:
            raise GraphValidationError(
                f"compile(renamed=...) says of both {other!r} and {old!r} that they are {new!r} now: what "
                "each of them still had to do could not be told apart."
            )
