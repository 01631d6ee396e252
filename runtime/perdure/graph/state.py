"""StateGraph: the description of a graph, step by step, until it is compiled."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Generic, Literal, Self, TypeVar, Unpack, overload

from perdure.cache.base import BaseCache
from perdure.channels.base import BaseChannel
from perdure.checkpoint.base import BaseCheckpointSaver
from perdure.clock import SYSTEM_CLOCK, Clock
from perdure.constants import DEFAULT_ERROR_HANDLER, DEFAULT_GRAPH_NAME, END, ERROR_HANDLER_PREFIX, START
from perdure.data import CachePolicy
from perdure.errors import (
    GraphStructureWarning,
    GraphValidationError,
)
from perdure.graph.actions.action_types import Action, Path, Runs
from perdure.graph.actions.branches import branch_of
from perdure.graph.actions.names import name_of
from perdure.graph.actions.runnables import action_of
from perdure.graph.arguments import OlderSchemas, labels_of, renamed, renamed_schemas, starts_of
from perdure.graph.checks.compile_arguments import (
    check_cache,
    check_checkpointer,
    check_renamed,
    interrupt_nodes,
)
from perdure.graph.checks.edges import check_edge, check_graph
from perdure.graph.checks.nodes import check_destinations, check_name, check_sequence
from perdure.graph.checks.structure import structure_warnings
from perdure.graph.compilation.plan import plan_of
from perdure.graph.compiled import CompiledStateGraph
from perdure.graph.description import NodeDefaults, StateBranch, StateNode
from perdure.graph.registration import register, register_schemas, warn_if_no_type
from perdure.graph.schema.fields import Cell
from perdure.managed import ManagedValue
from perdure.pregel.parameters import ClassSchema, ContextT, InputT, MappingSchema, OutputT_co, StateT
from perdure.pregel.plan.policies import Retry, Timeout, checked_cache_policy, retry_policies, timeout_policy

__all__ = ["CompiledStateGraph", "StateGraph"]

logger = logging.getLogger("perdure")

NodeInputT = TypeVar("NodeInputT", bound=MappingSchema | ClassSchema)
"""The type of a node's own schema."""


class StateGraph(Generic[StateT, ContextT, InputT, OutputT_co]):
    """A graph of nodes that read and update one typed state.

    Its type parameters are the types of the state, the context, the input and the output.

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
        state_schema, context_schema, input_schema, output_schema: the schemas that it was made with.
        channels, managed: the channels and managed values that the schemas declare, by state key.
        schemas: by schema, the channels and managed values that it declares itself.
        nodes, edges, waiting_edges, branches: what was added so far.
        defaults: the policies of nodes without their own.
        compiled: whether it was validated, as compile() does.
    """

    @overload
    def __init__(
        self,
        state_schema: type[StateT],
        context_schema: type[ContextT] | None = None,
        *,
        input_schema: type[InputT] | None = None,
        output_schema: type[OutputT_co] | None = None,
        **deprecated: Unpack[OlderSchemas],
    ) -> None: ...

    @overload
    def __init__(  # a bare value, such as Annotated[list[str], add], is of no class
        self,
        state_schema: object,
        context_schema: type[ContextT] | None = None,
        *,
        input_schema: type[InputT] | None = None,
        output_schema: type[OutputT_co] | None = None,
        **deprecated: Unpack[OlderSchemas],
    ) -> None: ...

    def __init__(
        self,
        state_schema: object,
        context_schema: type[ContextT] | None = None,
        *,
        input_schema: type[InputT] | None = None,
        output_schema: type[OutputT_co] | None = None,
        **deprecated: Unpack[OlderSchemas],
    ) -> None:
        """Begin the description of a graph.

        Args:
            state_schema: a TypedDict, a dataclass, a pydantic model, or the type of a bare value, which
                is then the whole state.
            context_schema: a dataclass, a pydantic model or a TypedDict. The `context` of a run may be a
                dict of its fields.
            input_schema: a schema with the keys that an input may write; default: the state schema.
            output_schema: a schema with the keys that a result shows; default: the state schema.
            deprecated: `config_schema`, `input` and `output`, older names of the other three.

        Raises:
            GraphValidationError: the schemas contradict each other, or one of them cannot be a schema.
        """
        schemas = {
            "context_schema": context_schema,
            "input_schema": input_schema,
            "output_schema": output_schema,
        }
        schemas = renamed_schemas(deprecated, schemas)
        self.state_schema: object = state_schema
        self.context_schema: object = schemas["context_schema"]
        self.input_schema = _either(schemas["input_schema"], state_schema)
        self.output_schema = _either(schemas["output_schema"], state_schema)
        self.channels: dict[str, BaseChannel] = {}
        self.managed: dict[str, type[ManagedValue]] = {}
        self.schemas: dict[object, dict[str, Cell]] = {}
        self.nodes: dict[str, StateNode] = {}
        self.edges: set[tuple[str, str]] = set()
        self.waiting_edges: set[tuple[tuple[str, ...], str]] = set()
        self.branches: dict[str, dict[str, StateBranch]] = {}
        self.defaults = NodeDefaults()
        self.compiled = False
        register_schemas(self)
        warn_if_no_type(state_schema)

    def add_node(
        self,
        node: str | Action[StateT, NodeInputT],
        action: Action[StateT, NodeInputT] | None = None,
        *,
        defer: bool = False,
        metadata: Mapping[str, Any] | None = None,
        input_schema: object = None,
        retry_policy: Retry = None,
        cache_policy: CachePolicy | None = None,
        error_handler: Runs | None = None,
        destinations: Mapping[str, str] | Sequence[str] | None = None,
        timeout: Timeout = None,
        retry: Retry = None,
        input: object = None,
    ) -> Self:
        """Add a node: `add_node(action)`, named after the action, or `add_node(name, action)`.

        An action is a sync or async function, an object with `ainvoke` or `invoke`, a compiled graph, or a
        dict of these, which run side by side. It receives the state, and returns a mapping of the keys
        that it changes, a Command, or None. Sync functions run in a worker thread. A function asks for
        more by the names of its other parameters: `config`, `runtime`, `writer`, `store`, `previous`,
        `error`.

        Args:
            defer: wait until nothing else is left to run.
            metadata: added to the metadata in the config of the node, and of all that runs below it.
            input_schema: the part of the state that the node receives; its keys are added to the state.
                Default: the schema that the first parameter is annotated with, else the state's.
            retry_policy: when to run the node again after it failed; of several, the first that matches.
            cache_policy: when to reuse a result of an earlier run.
            error_handler: an action that runs in place of the node when it failed, on the same input.
            destinations: nodes that it goes to by a Command, perhaps with labels for drawings. They must
                exist; the node may still go to others. Default: those in `Command[Literal[...]]`, if
                that is its return annotation.
            timeout: the longest that an attempt may take: seconds, a timedelta, or a TimeoutPolicy. Only
                async nodes may have one.
            retry, input: older names of `retry_policy` and `input_schema`.

        Raises:
            GraphValidationError: the name is taken or reserved, or an argument is wrong.
            NodeSignatureError: the action cannot be called as it would be.
        """
        self._warn_if_compiled("node")
        retry_policy = renamed("retry", retry, "retry_policy", retry_policy)
        schema = renamed("input", input, "input_schema", input_schema)
        name = node if isinstance(node, str) else name_of(node)
        given = action if isinstance(node, str) else node
        check_name(name, self.nodes, given)
        described = self._describe(name, given, schema)
        handler = None if error_handler is None else ERROR_HANDLER_PREFIX + name
        described = replace(
            described,
            defer=defer,
            metadata=dict(metadata or {}),
            destinations=described.destinations if destinations is None else labels_of(destinations),
            retry_policy=retry_policies(f"node {name!r}", retry_policy),
            cache_policy=checked_cache_policy(f"node {name!r}", cache_policy),
            timeout=timeout_policy(f"node {name!r}", timeout),
            error_handler=handler,
        )
        # The handler is described before either is added: an error leaves the graph as it was.
        handles = None if handler is None else self._describe(handler, error_handler, described.input_schema)
        self.nodes[name] = described
        if handler is not None and handles is not None:
            self.nodes[handler] = handles
        return self

    def _describe(self, name: str, given: object, schema: object) -> StateNode:
        """Describe a node by its action and the action's annotations."""
        action = action_of(name, given)
        schema = action.schema if schema is None else schema
        if schema is self.state_schema:
            schema = None
        if schema is not None:
            register(self, schema)
        return StateNode(
            action=action.call,
            calling=action.calling,
            injects=action.injects,
            input_schema=schema,
            destinations=labels_of(action.destinations),
            subgraph=action.subgraph,
        )

    def set_node_defaults(
        self,
        *,
        retry_policy: Retry = None,
        cache_policy: CachePolicy | None = None,
        error_handler: Runs | None = None,
        timeout: Timeout = None,
    ) -> Self:
        """Set the policies of nodes without their own, whether they were added before or are added later.

        Nodes of child graphs do not take them over. Error handlers take retries and timeout from here,
        but are neither cached nor handled. A policy that is None stays as it was.
        """
        self._warn_if_compiled("default")
        what = "the node defaults"
        given = NodeDefaults(
            retry_policy=retry_policies(what, retry_policy),
            cache_policy=checked_cache_policy(what, cache_policy),
            timeout=timeout_policy(what, timeout),
            error_handler=None if error_handler is None else DEFAULT_ERROR_HANDLER,
        )
        if error_handler is not None:
            self.nodes[DEFAULT_ERROR_HANDLER] = self._describe(DEFAULT_ERROR_HANDLER, error_handler, None)
        self.defaults = given.over(self.defaults)
        return self

    def add_sequence(self, nodes: Sequence[Runs | tuple[str, Runs]]) -> Self:
        """Add actions, or pairs `(name, action)`, that run one after the other.

        Raises GraphValidationError if there are none, or if a name is taken; then none is added.
        """
        named = [each if isinstance(each, tuple) else (name_of(each), each) for each in nodes]
        check_sequence([name for name, _ in named], self.nodes)
        for name, action in named:
            self.add_node(name, action)
        for (before, _), (after, _) in pairwise(named):
            self.add_edge(before, after)
        return self

    def set_entry_point(self, key: str) -> Self:
        """Begin with this node: an edge from START."""
        return self.add_edge(START, key)

    def set_finish_point(self, key: str) -> Self:
        """End with this node: an edge to END."""
        return self.add_edge(key, END)

    def set_conditional_entry_point(
        self,
        path: Path,
        path_map: Mapping[Hashable, str] | Sequence[str] | None = None,
    ) -> Self:
        """Begin with the nodes that `path` chooses: a conditional edge from START."""
        return self.add_conditional_edges(START, path, path_map)

    def add_edge(self, start: str | Iterable[str], end: str) -> Self:
        """Run `end` after `start`; once after all of them, if `start` is a list of nodes."""
        self._warn_if_compiled("edge")
        starts = starts_of(start, end)
        check_edge(self, starts, end)
        if isinstance(starts, str):
            self.edges.add((starts, end))
        else:
            self.waiting_edges.add((starts, end))
        return self

    def add_conditional_edges(
        self,
        source: str,
        path: Path,
        path_map: Mapping[Hashable, str] | Sequence[str] | None = None,
    ) -> Self:
        """Run the nodes that `path` chooses after `source`, in addition to those that its edges lead to.

        Args:
            path: a function, sync or async, another callable, or an object with `ainvoke` or `invoke`. It
                receives the state as `source` leaves it, in the schema that its first parameter is
                annotated with, and returns a node's name, a Send, END, or a list of these. It runs on the
                event loop, even if it is sync.
            path_map: the nodes by the values that the path returns, or the names that it may return.
                Default: those in the `Literal` that the path is annotated to return, else any node.

        Raises:
            GraphValidationError: `source` has a conditional edge of this name already.
        """
        self._warn_if_compiled("edge")
        branch = branch_of(source, path, path_map)
        branches = self.branches.setdefault(source, {})
        if branch.name in branches:
            raise GraphValidationError(
                f"Branch with name `{branch.name}` already exists for node `{source}`. Its name is that of "
                "the path's function: give this function another one."
            )
        if branch.input_schema is not None:
            register(self, branch.input_schema)
        branches[branch.name] = branch
        return self

    def validate(self, interrupt: Sequence[str] | None = None) -> Self:
        """Check the graph as compile() does, and that it has the nodes in `interrupt`.

        Raises:
            GraphValidationError: an edge leads from or to an unknown node, nothing leaves START, or a node
                in `interrupt` does not exist.
        """
        check_graph(self)
        check_destinations(self.nodes)
        interrupt_nodes(self, "interrupt", interrupt)
        self.compiled = True
        return self

    def compile(
        self,
        checkpointer: BaseCheckpointSaver | bool | None = None,
        *,
        cache: BaseCache | None = None,
        store: Any = None,
        interrupt_before: Literal["*"] | Sequence[str] | None = None,
        interrupt_after: Literal["*"] | Sequence[str] | None = None,
        debug: bool = False,
        name: str | None = None,
        strict: bool = False,
        renamed: Mapping[str, str] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> CompiledStateGraph[StateT, ContextT, InputT, OutputT_co]:
        """Make a graph that can run. Later changes to this description do not affect it.

        Args:
            checkpointer: the saver that keeps threads. None: no thread is kept, except that a child graph
                uses the saver of its parent graph. False: no thread is kept even there.
            cache: the cache for results of nodes with a cache policy.
            store: the store that nodes receive.
            interrupt_before: nodes before which a run stops until it is resumed; "*": all.
            interrupt_after: nodes after which a run stops until it is resumed; "*": all.
            debug: print every superstep, and warn of values that nodes change in place.
            name: the name under which runs are recorded, and found after a crash.
            strict: make errors of two warnings: about updates with unknown keys, and about structure.
            renamed: the present names of nodes by their old names. A stored thread that waits on a node's
                old name goes on with the node of the present name.
            clock: time and sleep, for tests.

        Raises:
            GraphValidationError: the graph has a fault that `validate` finds, or an argument is wrong.
            TypeError: the checkpointer is no saver, or the cache is no cache.

        Warns:
            GraphStructureWarning: a node would run twice, or a join might never fire.
        """
        check_checkpointer(checkpointer)
        check_cache(cache)
        self.validate()
        before = interrupt_nodes(self, "interrupt_before", interrupt_before)
        after = interrupt_nodes(self, "interrupt_after", interrupt_after)
        check_renamed(self, renamed or {})
        for warning in structure_warnings(self):
            if strict:
                raise GraphValidationError(warning)
            warnings.warn(warning, GraphStructureWarning, stacklevel=2)
        return CompiledStateGraph.from_description(
            self,
            plan_of(self, name or DEFAULT_GRAPH_NAME, strict=strict, renamed=renamed or {}),
            checkpointer=checkpointer,
            store=store,
            cache=cache,
            interrupt_before_nodes=before,
            interrupt_after_nodes=after,
            debug=debug,
            clock=clock,
        )

    def _warn_if_compiled(self, what: str) -> None:
        if self.compiled:
            logger.warning(
                "Adding a %s to a graph that has been compiled does not change what was compiled.", what
            )


def _either(schema: object, default: object) -> object:
    return default if schema is None else schema
