"""Checks of the arguments of compile()."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager

from perdure.cache.base import BaseCache
from perdure.checkpoint.base import BaseCheckpointSaver
from perdure.constants import RESERVED_NODE_NAMES
from perdure.errors import GraphValidationError
from perdure.graph.description import Description
from perdure.pregel.plan.names import EVERY_NODE, nearest


def check_checkpointer(checkpointer: object) -> None:
    """Refuse a checkpointer that is not a saver, False or None."""
    if isinstance(checkpointer, AbstractAsyncContextManager | AbstractContextManager) and not isinstance(
        checkpointer, BaseCheckpointSaver
    ):
        raise TypeError(
            "Invalid checkpointer provided: this is a context manager that opens one. Write `async with "
            "PostgresSaver.from_conn_string(...) as saver:` and compile with `checkpointer=saver`."
        )
    if checkpointer is True or not isinstance(checkpointer, BaseCheckpointSaver | bool | None):
        raise TypeError(
            "Invalid checkpointer provided. Expected an instance of `BaseCheckpointSaver`, `False`, or "
            f"`None`. Received {type(checkpointer).__name__}: {checkpointer!r}."
        )


def check_cache(cache: object) -> None:
    """Refuse a cache that is not a BaseCache or None."""
    if cache is not None and not isinstance(cache, BaseCache):
        raise TypeError(
            "Invalid cache provided. Expected an instance of `BaseCache`, such as InMemoryCache(), or "
            f"`None`. Received {type(cache).__name__}: {cache!r}."
        )


def interrupt_nodes(graph: Description, said_by: str, names: Sequence[str] | None) -> str | tuple[str, ...]:
    """Return the nodes at which a compiled graph pauses: "*" for all, else names that exist.

    Args:
        said_by: the parameter that names them, for messages.

    Raises GraphValidationError for a name that is no node.
    """
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
    """Refuse a mapping of old names to new ones that leaves open which node a stored thread means."""
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
                f"{old!r}: a stored thread could mean either. Map each old name to the present one, and "
                "give no new node a name that stored threads still use."
            )
        if old in RESERVED_NODE_NAMES:
            raise GraphValidationError(f"compile(renamed=...) names {old!r}, which no node can have had.")
        other = known.setdefault(new, old)
        if other != old:
            raise GraphValidationError(
                f"compile(renamed=...) says of both {other!r} and {old!r} that they are {new!r} now, but a "
                "thread may wait on each of them. Map one of them to another node."
            )
