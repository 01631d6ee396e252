"""StateGraph: describing a graph, and making a Plan of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Self

from perdure.channels.base import BaseChannel
from perdure.checkpoint.base import BaseCheckpointSaver
from perdure.clock import SYSTEM_CLOCK, Clock
from perdure.constants import DEFAULT_GRAPH_NAME, END, RESERVED_NODE_NAMES, START, join_channel
from perdure.errors import GraphValidationError
from perdure.graph.actions import calling_of, check_action, check_path, literal_ends, name_of
from perdure.graph.compile import plan_of
from perdure.graph.description import StateBranch, StateNode
from perdure.graph.schema import channels_of
from perdure.managed import ManagedValue
from perdure.pregel.graph import Pregel

logger = logging.getLogger("perdure")

_RESERVED_CHARACTERS = "|:"


class StateGraph:
    """A graph of nodes that read and update one typed state.

    Example:
        >>> from typing import TypedDict
        >>> class State(TypedDict):
        ...     x: int
        >>> async def double(state: State) -> State:
        ...     return {"x": state["x"] * 2}
        >>> builder = StateGraph(State)
        >>> graph = builder.add_node(double).add_edge(START, "double").compile()
        >>> # await graph.ainvoke({"x": 21}) returns {"x": 42}

    Attributes:
        nodes, edges, waiting_edges, branches: what was added so far.
        channels: what the schemas declare, by state key.
    """

    def __init__(self, state_schema: Any, *, input_schema: Any = None, output_schema: Any = None) -> None:
        """Describe a graph over a TypedDict.

        Args:
            input_schema: a TypedDict of the keys that an input may write; default: all.
            output_schema: a TypedDict of the keys that a result shows; default: all.
        """
        self.state_schema = state_schema
        self.input_schema = input_schema or state_schema
        self.output_schema = output_schema or state_schema
        self.nodes: dict[str, StateNode] = {}
        self.edges: set[tuple[str, str]] = set()
        self.waiting_edges: set[tuple[tuple[str, ...], str]] = set()
        self.branches: dict[str, dict[str, StateBranch]] = {}
        self.channels: dict[str, BaseChannel[Any, Any]] = {}
        self.managed: dict[str, type[ManagedValue]] = {}
        self.compiled = False
        for schema in (state_schema, self.input_schema, self.output_schema):
            self._declare(channels_of(schema))

    def _declare(self, channels: Mapping[str, BaseChannel[Any, Any]]) -> None:
        for key, channel in channels.items():
            known = self.channels.setdefault(key, channel)
            if known != channel and type(channel).__name__ != "LastValue":
                raise GraphValidationError(f"Channel {key!r} already exists with a different type.")

    def add_node(self, node: str | Callable[[Any], Any], action: Callable[[Any], Any] | None = None) -> Self:
        """Add a node: `add_node(action)`, named after the function, or `add_node(name, action)`.

        An action is given the state, and returns a mapping of the keys it changes, a Command, or
        None. Sync actions run in a worker thread.
        """
        self._warn_if_compiled("node")
        if isinstance(node, str):
            name, function = node, action
        else:
            name, function = name_of(node), node
        if function is None:
            raise GraphValidationError(f"Node {name!r} has no action: call add_node({name!r}, action).")
        if name in self.nodes:
            raise GraphValidationError(f"Node `{name}` already present.")
        if name in (START, END) or name in RESERVED_NODE_NAMES:
            raise GraphValidationError(f"Node `{name}` is reserved.")
        for character in _RESERVED_CHARACTERS:
            if character in name:
                raise GraphValidationError(
                    f"'{character}' is a reserved character and is not allowed in the node names: {name!r}."
                )
        check_action(name, function)
        self.nodes[name] = StateNode(action=function, calling=calling_of(function))
        return self

    def add_edge(self, start: str | Sequence[str], end: str) -> Self:
        """Run `end` after `start`; after all of them, if `start` is a list of nodes."""
        self._warn_if_compiled("edge")
        if end == START:
            raise GraphValidationError("START cannot be an end node")
        if isinstance(start, str):
            if start == END:
                raise GraphValidationError("END cannot be a start node")
            self.edges.add((start, end))
            return self
        if not start:
            raise GraphValidationError(
                f"An edge needs at least one node to start from; that to {end!r} has none."
            )
        for name in (*start, *(() if end == END else (end,))):
            if name == END:
                raise GraphValidationError("END cannot be a start node")
            if name not in self.nodes:
                raise GraphValidationError(f"Need to add_node `{name}` first")
        self.waiting_edges.add((tuple(start), end))
        return self

    def add_conditional_edges(
        self,
        source: str,
        path: Callable[[Any], Any],
        path_map: Mapping[Hashable, str] | Sequence[str] | None = None,
    ) -> Self:
        """After `source`, go where `path` says.

        Args:
            path: given the state as `source` leaves it; sync or async; returns a node's name, a
                Send, END, or a list of these.
            path_map: what the path returns, and the node that it means; or the names it may return.
                Default: the `Literal` that the path is annotated to return, else any node.
        """
        self._warn_if_compiled("edge")
        name = name_of(path, default="condition")
        branches = self.branches.setdefault(source, {})
        if name in branches:
            raise GraphValidationError(f"Branch with name `{name}` already exists for node `{source}`")
        check_path(source, path)
        if path_map is None:
            ends = literal_ends(path)
        elif isinstance(path_map, Mapping):
            ends = dict(path_map)
        else:
            ends = {target: target for target in path_map}
        branches[name] = StateBranch(name=name, path=path, ends=ends)
        return self

    def validate(self) -> Self:
        """Check that the graph hangs together. Raises GraphValidationError; compile() calls this."""
        known = {START, *self.nodes}
        sources = {start for start, _ in self.edges} | self.branches.keys()
        for source in sorted(sources - known):
            raise GraphValidationError(f"Found edge starting at unknown node '{source}'")
        if START not in sources:
            raise GraphValidationError(
                "Graph must have an entrypoint: add at least one edge from START to another node"
            )
        for _, end in sorted(self.edges | self.waiting_edges, key=str):
            if end != END and end not in self.nodes:
                raise GraphValidationError(f"Found edge ending at unknown node `{end}`")
        for source, branches in self.branches.items():
            for branch in branches.values():
                for target in (branch.ends or {}).values():
                    if target != END and target not in self.nodes:
                        raise GraphValidationError(
                            f"At '{source}' node, '{branch.name}' branch found unknown target '{target}'"
                        )
        self._check_joins()
        self.compiled = True
        return self

    def _check_joins(self) -> None:
        """Refuse two joins whose starts, written one after the other, read the same."""
        known: dict[str, tuple[str, ...]] = {}
        for starts, end in sorted(self.waiting_edges):
            other = known.setdefault(join_channel(starts, end), starts)
            if other != starts:
                raise GraphValidationError(
                    f"The joins of {other} and of {starts} would share the channel "
                    f"{join_channel(starts, end)!r}. Rename a node whose name has a '+'."
                )

    def compile(
        self,
        checkpointer: BaseCheckpointSaver | bool | None = None,
        *,
        name: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> CompiledStateGraph:
        """Make a graph that can be run, and that later changes to this description do not touch.

        Args:
            checkpointer: where threads are kept. None keeps nothing, but below a node of another
                graph uses that one's; False keeps nothing even there.
            name: what runs of this graph are recorded under, and found by after a crash.
            clock: time and sleep, for tests.
        """
        if isinstance(checkpointer, AbstractAsyncContextManager):
            raise TypeError(
                "Invalid checkpointer provided: this is what opens one. Write `async with "
                "PostgresSaver.from_conn_string(...) as saver:` and compile with `checkpointer=saver`."
            )
        if checkpointer is True or not isinstance(checkpointer, BaseCheckpointSaver | bool | None):
            raise TypeError(
                "Invalid checkpointer provided. Expected an instance of `BaseCheckpointSaver`, `False`, or "
                f"`None`. Received {type(checkpointer).__name__}: {checkpointer!r}."
            )
        self.validate()
        plan = plan_of(self, name or DEFAULT_GRAPH_NAME)
        graph = CompiledStateGraph.from_plan(plan, checkpointer=checkpointer, clock=clock)
        graph.builder = self
        return graph

    def _warn_if_compiled(self, what: str) -> None:
        if self.compiled:
            logger.warning(
                "Adding a %s to a graph that has been compiled does not change what was compiled.", what
            )


class CompiledStateGraph(Pregel):
    """What `StateGraph.compile` makes.

    Attributes:
        builder: the description that it was made from. Changing that does not change this.
    """

    builder: StateGraph
