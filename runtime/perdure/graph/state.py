"""StateGraph: describing a graph, and making a Plan of it."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Literal, Self

from perdure.channels.base import BaseChannel
from perdure.checkpoint.base import BaseCheckpointSaver
from perdure.clock import SYSTEM_CLOCK, Clock
from perdure.constants import DEFAULT_GRAPH_NAME, END, RESERVED_NODE_NAMES, START
from perdure.errors import GraphStructureWarning, GraphValidationError
from perdure.graph.actions import calling_of, check_action, name_of
from perdure.graph.branches import Path, branch_of
from perdure.graph.checks import check_checkpointer, check_edge, check_graph, check_renamed, interrupt_nodes
from perdure.graph.compile import plan_of
from perdure.graph.description import StateBranch, StateNode
from perdure.graph.drawing import Drawable, outline_of
from perdure.graph.schema import channels_of
from perdure.graph.structure import structure_warnings
from perdure.managed import ManagedValue
from perdure.pregel.graph import Pregel

logger = logging.getLogger("perdure")

_RESERVED_CHARACTERS = "|:"


class CompiledStateGraph(Drawable, Pregel):
    """What StateGraph.compile() makes."""


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

    def _register(self, schema: Any) -> None:
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
        """Run `end` after `start`; once after all of them, if `start` is a list of nodes."""
        self._warn_if_compiled("edge")
        check_edge(self, start, end)
        if isinstance(start, str):
            self.edges.add((start, end))
        else:
            self.waiting_edges.add((tuple(start), end))
        return self

    def add_conditional_edges(
        self,
        source: str,
        path: Path,
        path_map: Mapping[Hashable, str] | Sequence[str] | None = None,
    ) -> Self:
        """After `source`, go where `path` says, beside where the edges of `source` lead.

        Args:
            path: given the state as `source` leaves it, as the class that its first parameter is
                annotated with; a function, sync or async, another callable, or an object with `ainvoke`
                or `invoke`. Returns a node's name, a Send, END, or a list of these. It runs on the event
                loop, even if it is sync.
            path_map: what the path returns, and the node that it means; or the names it may return.
                Default: the `Literal` that the path is annotated to return, else any node.
        """
        self._warn_if_compiled("edge")
        branch = branch_of(source, path, path_map)
        branches = self.branches.setdefault(source, {})
        if branch.name in branches:
            raise GraphValidationError(
                f"Branch with name `{branch.name}` already exists for node `{source}`: a path is known by "
                "its function's name, so give this one another."
            )
        if branch.input_schema is not None:
            self._register(branch.input_schema)
        branches[branch.name] = branch
        return self

    def validate(self, interrupt: Sequence[str] | None = None) -> Self:
        """Check that the graph hangs together, and that it has the nodes in `interrupt`.

        Raises GraphValidationError; compile() calls this.
        """
        check_graph(self)
        interrupt_nodes(self, "interrupt", interrupt)
        self.compiled = True
        return self

    def compile(
        self,
        checkpointer: BaseCheckpointSaver | bool | None = None,
        *,
        cache: Any = None,
        store: Any = None,
        interrupt_before: Literal["*"] | Sequence[str] | None = None,
        interrupt_after: Literal["*"] | Sequence[str] | None = None,
        debug: bool = False,
        name: str | None = None,
        strict: bool = False,
        renamed: Mapping[str, str] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> CompiledStateGraph:
        """Make a graph that can be run, and that later changes to this description do not touch.

        Args:
            checkpointer: where threads are kept. None keeps nothing, but below a node of another
                graph uses that one's; False keeps nothing even there.
            cache: where results of nodes with a cache policy are kept.
            store: what nodes find as the run's store.
            interrupt_before: nodes before which a run stops until it is resumed; "*" means all.
            interrupt_after: nodes after which it does.
            debug: print every superstep, and warn of values that nodes change in place.
            name: what runs of this graph are recorded under, and found by after a crash.
            strict: an update that names an unknown key is an error in place of a warning, and so is a
                structure that would otherwise be warned of.
            renamed: the old names of nodes, and what they are called now: a stored thread that waits on a
                node's old name goes on at the new one.
            clock: time and sleep, for tests.

        Warns:
            GraphStructureWarning: a node would run twice, or a join might never fire.
        """
        check_checkpointer(checkpointer)
        self.validate()
        before = interrupt_nodes(self, "interrupt_before", interrupt_before)
        after = interrupt_nodes(self, "interrupt_after", interrupt_after)
        check_renamed(self, renamed or {})
        for warning in structure_warnings(self):
            if strict:
                raise GraphValidationError(warning)
            warnings.warn(warning, GraphStructureWarning, stacklevel=2)
        compiled = CompiledStateGraph(
            plan_of(self, name or DEFAULT_GRAPH_NAME, strict=strict, renamed=renamed or {}),
            checkpointer=checkpointer,
            store=store,
            cache=cache,
            interrupt_before=before,
            interrupt_after=after,
            debug=debug,
            clock=clock,
        )
        compiled.outline = outline_of(self)
        return compiled

    def _warn_if_compiled(self, what: str) -> None:
        if self.compiled:
            logger.warning(
                "Adding a %s to a graph that has been compiled does not change what was compiled.", what
            )
