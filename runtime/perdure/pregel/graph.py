"""Pregel: what can be done with a compiled graph."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cached_property, partial
from typing import Any, Generic, Self, Unpack, overload

from perdure.aio.gathering import all_of
from perdure.aio.hosting import Hosted, hosted
from perdure.cache.base import BaseCache
from perdure.channels.base import BaseChannel
from perdure.checkpoint.base import BaseCheckpointSaver, Orphan
from perdure.clock import SYSTEM_CLOCK, Clock
from perdure.config import Config, merge_configs, parse_config, require_thread
from perdure.constants import DEFAULT_GRAPH_NAME, START
from perdure.data import CachePolicy, Durability, RetryPolicy, StateSnapshot, StreamMode
from perdure.errors import GraphValidationError
from perdure.pregel.copies import copy_with
from perdure.pregel.events.buffer import MOST_UNREAD, Buffer, checked_modes
from perdure.pregel.options import BatchOptions, GraphOptions, RunOptions
from perdure.pregel.parameters import (
    ClassSchema,
    ContextT,
    GraphContext,
    GraphInput,
    InputT,
    MappingSchema,
    OutputT_co,
    StateT,
)
from perdure.pregel.plan.assembly import Parts, assemble, built, check
from perdure.pregel.plan.builder import NodeBuilder, PregelNode
from perdure.pregel.plan.names import listed_names, nearest
from perdure.pregel.plan.plan import Described, NodeSpec, Plan
from perdure.pregel.plan.policies import checked_cache_policy, retry_policies
from perdure.pregel.run.asking import durability_of, output_keys_of, resumed_request, scope_of, settings_of
from perdure.pregel.run.begin import run_graph
from perdure.pregel.run.breakpoints import Breakpoints, breakpoints
from perdure.pregel.run.request import RunRequest
from perdure.pregel.snapshots import read_snapshot
from perdure.pregel.subgraphs import subgraphs_of
from perdure.pregel.work.cache_key import namespace_of
from perdure.pregel.work.running import running_task
from perdure.sync import sync_iterator_of, sync_of


class Pregel(Generic[StateT, ContextT, InputT, OutputT_co]):
    """A graph that can be run. It holds no state of any run, and may be used by many at once.

    A StateGraph compiles to one; from nodes and channels it is made directly. Its type parameters are
    those of the StateGraph: state, context, input and output.

    Example:
        >>> double = NodeBuilder().subscribe_only("x").do(lambda x: 2 * x).write_to("y")
        >>> graph = Pregel(
        ...     nodes={"double": double},
        ...     channels={"x": LastValue(int), "y": LastValue(int)},
        ...     input_channels="x",
        ...     output_channels="y",
        ... )
        >>> # await graph.ainvoke(21) returns 42

    Attributes:
        plan: the graph as it is run.
        checkpointer: the saver that keeps threads.
        store: the store that nodes are given.
        cache: the cache of nodes' results.
        stream_mode: the mode of `astream` where the call names none.
        step_timeout: the longest that a superstep may take, in seconds or as a timedelta; None: no limit.
        interrupt_before_nodes, interrupt_after_nodes: names of nodes, or "*" for all.
        retry_policy, cache_policy: the policies of nodes without their own.
        context_schema: the schema of the run's context.
        debug: whether every superstep is printed.
        builder: the StateGraph that it was compiled from, if there is one.
        config: the config that `with_config` bound it to.
        most_unread: how many events a node may put into a stream while no reader takes any.
    """

    def __init__(
        self,
        *,
        nodes: Mapping[str, PregelNode | NodeBuilder],
        channels: Mapping[str, BaseChannel],
        input_channels: str | Sequence[str],
        output_channels: str | Sequence[str],
        stream_channels: str | Sequence[str] | None = None,
        stream_mode: StreamMode = "values",
        auto_validate: bool = True,
        interrupt_before_nodes: str | Sequence[str] = (),
        interrupt_after_nodes: str | Sequence[str] = (),
        step_timeout: float | timedelta | None = None,
        debug: bool = False,
        checkpointer: BaseCheckpointSaver | bool | None = None,
        store: Any = None,
        cache: BaseCache | None = None,
        retry_policy: RetryPolicy | Sequence[RetryPolicy] = (),
        cache_policy: CachePolicy | None = None,
        context_schema: type[ContextT] | None = None,
        name: str = DEFAULT_GRAPH_NAME,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Make a graph of nodes that subscribe to channels.

        Args:
            nodes: the nodes by name, built or as described by a NodeBuilder.
            channels: the channels by name; the graph uses empty copies.
            input_channels: the channel that takes the input; if there are several, the input is a mapping.
            output_channels: the channel whose bare value is the result; if there are several, the result is a
                dict of those that have a value.
            stream_channels: the channels that streams and `aget_state` show, likewise; default: all.
            auto_validate: whether to check now that the parts fit together; otherwise at the first use.
            name: the name that runs are recorded under, and found by after a crash.

        Raises:
            GraphValidationError: a name is reserved or unknown, or nothing subscribes to the input.
        """
        self._parts = Parts(
            name=name,
            nodes=built(nodes),
            channels=dict(channels),
            input_channels=input_channels,
            output_channels=output_channels,
            stream_channels=stream_channels,
            interrupt_nodes=listed_names(interrupt_before_nodes, interrupt_after_nodes),
            retry_policy=retry_policies("the graph", retry_policy) or (),
            cache_policy=checked_cache_policy("the graph", cache_policy),
        )
        self.checkpointer = checkpointer
        self.store = store
        self.cache = cache
        self.stream_mode = stream_mode
        self.step_timeout = step_timeout
        self.interrupt_before_nodes = interrupt_before_nodes
        self.interrupt_after_nodes = interrupt_after_nodes
        self.retry_policy = self._parts.retry_policy
        self.cache_policy = cache_policy
        self.context_schema = context_schema
        self.debug = debug
        self.most_unread = MOST_UNREAD
        self.builder: object = None
        self.config: Config | None = None
        self._clock = clock
        if auto_validate:
            self.validate()

    @classmethod
    def from_plan(cls, plan: Plan, **options: Unpack[GraphOptions]) -> Self:
        """Make a graph that runs this plan; its streams yield "updates", unless `stream_mode` says more."""
        options.setdefault("stream_mode", "updates")
        graph = cls(
            nodes={}, channels={}, input_channels=(), output_channels=(), auto_validate=False, **options
        )
        graph.plan = plan
        return graph

    @cached_property
    def plan(self) -> Plan:
        """The graph as it is run. Raises GraphValidationError if its parts do not fit together."""
        check(self._parts)
        return assemble(self._parts)

    def validate(self) -> Self:
        """Check that the graph's parts fit together, if that was put off. Raises GraphValidationError."""
        _ = self.plan
        return self

    @property
    def name(self) -> str:
        """The name that runs are recorded under."""
        return self.plan.name

    def get_name(self) -> str:
        """Return the name that `add_node` gives to a node that is this graph."""
        return self.plan.name

    @property
    def nodes(self) -> Mapping[str, NodeSpec]:
        """The nodes as they are run, by name; START among them where there is one."""
        return self.plan.nodes

    @property
    def channels(self) -> Mapping[str, BaseChannel]:
        """The channels, empty, by name; those that the engine added among them."""
        return self.plan.channels

    @property
    def trigger_to_nodes(self) -> Mapping[str, Sequence[str]]:
        """The nodes that a channel can start, by channel."""
        return self.plan.triggered

    @property
    def input_channels(self) -> str | Sequence[str]:
        """The channels that an input is written to."""
        return START if START in self.plan.nodes else self._parts.input_channels

    @property
    def output_channels(self) -> str | Sequence[str]:
        """The channels that a result shows."""
        return self.plan.output_keys

    @property
    def stream_channels(self) -> str | Sequence[str]:
        """The channels that a stream shows."""
        return self.plan.output_keys if self.plan.stream_keys is None else self.plan.stream_keys

    def copy(self, update: Mapping[str, Any] | None = None) -> Self:
        """Return this graph again, with other values for the attributes in `update`."""
        return copy_with(self, update or {})

    def with_config(self, config: Config | None = None, **more: Any) -> Self:
        """Return this graph, bound to a config: a call overrides it, and it overrides the surrounding run's.

        Tags are joined, metadata and configurable merged key by key. Keywords are more keys of the config.
        """
        return self.copy({"config": merge_configs(self.config, merge_configs(config, more))})

    @property
    def subgraphs(self) -> Mapping[str, Pregel]:
        """The compiled graphs among the nodes, by name."""
        children = {
            name: spec.child.graph for name, spec in self.plan.nodes.items() if spec.child is not None
        }
        return {name: graph for name, graph in children.items() if isinstance(graph, Pregel)}

    def get_subgraphs(
        self, namespace: str | None = None, recurse: bool = False
    ) -> Iterator[tuple[str, Pregel]]:
        """Yield the compiled graphs that were added as nodes, with the names of these nodes.

        Args:
            namespace: only the one of this name; of a graph in a graph, the names joined by "|".
            recurse: those in these graphs as well.
        """
        return subgraphs_of(self.subgraphs, namespace, recurse)

    async def aget_subgraphs(
        self, namespace: str | None = None, recurse: bool = False
    ) -> AsyncIterator[tuple[str, Pregel]]:
        """Yield what `get_subgraphs` yields."""
        for found in self.get_subgraphs(namespace, recurse):
            yield found

    @overload
    async def ainvoke(
        self: Pregel[StateT, ContextT, InputT, MappingSchema],
        input: GraphInput[InputT],
        config: Config | None = None,
        *,
        context: GraphContext[ContextT] = None,
        output_keys: None = None,
        **options: Unpack[RunOptions],
    ) -> OutputT_co: ...

    @overload
    async def ainvoke(
        self: Pregel[StateT, ContextT, InputT, ClassSchema],
        input: GraphInput[InputT],
        config: Config | None = None,
        *,
        context: GraphContext[ContextT] = None,
        output_keys: None = None,
        **options: Unpack[RunOptions],
    ) -> dict[str, Any]: ...

    @overload
    async def ainvoke(
        self,
        input: GraphInput[InputT],
        config: Config | None = None,
        *,
        context: GraphContext[ContextT] = None,
        output_keys: str | Sequence[str] | None = None,
        **options: Unpack[RunOptions],
    ) -> Any: ...

    async def ainvoke(
        self,
        input: GraphInput[InputT],
        config: Config | None = None,
        *,
        context: GraphContext[ContextT] = None,
        output_keys: str | Sequence[str] | None = None,
        interrupt_before: Sequence[str] | None = None,
        interrupt_after: Sequence[str] | None = None,
        durability: Durability | None = None,
        debug: bool | None = None,
    ) -> Any:
        """Run the graph to its end and return the output.

        Args:
            input: a mapping of state keys, an object with such attributes, or the bare value if the state
                is one; for a graph of channels, the value of its input channel. None continues the
                thread with its pending tasks. A Command does so too, after its update, and starts the
                nodes that it names.
            config: see RunnableConfig. With a checkpointer, `configurable.thread_id` is required.
            context: the nodes' `runtime.context`; default: that of the surrounding run.
            output_keys: the state keys to return, or a single one, whose bare value is returned; default:
                those of the output schema.
            interrupt_before, interrupt_after: nodes before or after which to stop, "*" for all, in place
                of those that the graph was compiled with. The state at that point is returned; a call
                with None as the input continues.
            durability: see Durability; default "async".
            debug: print every superstep, and warn of values that nodes change in place; default: as the
                graph was compiled, or the surrounding run.

        Raises:
            MissingThreadError: there is a checkpointer, but no thread_id.
            EmptyInputError: the input is None, and the thread has nothing to resume.
            InvalidUpdateError: the input, or a node's result, is not an update of the state.
            GraphRecursionError: `recursion_limit` supersteps were not enough.
            ThreadBusyError: another run holds the thread.
            StaleRunError: this run lost its thread to another.
            Exception: an exception that a node raised, with a note that names the task.
        """
        stops = self._breakpoints(interrupt_before, interrupt_after)
        request = self._request(
            input, config, context, output_keys, durability, debug=debug, breakpoints=stops
        )
        return await run_graph(request if input is not None else await resumed_request(request))

    async def abatch(
        self,
        inputs: Sequence[GraphInput[InputT]],
        config: Config | Sequence[Config] | None = None,
        *,
        return_exceptions: bool = False,
        **options: Unpack[BatchOptions],
    ) -> list[Any]:
        """Run the graph on every input, side by side, and return the outputs in the order of the inputs.

        Args:
            config: one for all, or one for each. Its `max_concurrency`, or that of the first, is the most
                runs at the same time, and the most tasks of each. Runs on one thread cannot overlap:
                with a checkpointer, give each run its own thread.
            return_exceptions: return an error in the place of its run's output; otherwise it stops the
                other runs and is raised.
            options: other arguments of `ainvoke`.
        """
        one_for_all = config is None or isinstance(config, Mapping)
        configs: Sequence[Any] = [config] * len(inputs) if one_for_all else list(config or ())
        if len(configs) != len(inputs):
            raise GraphValidationError(
                f"There are {len(inputs)} inputs, but {len(configs)} configs: give one for all, or one for "
                "each."
            )
        if not inputs:
            return []
        limit = settings_of(self, configs[0], running_task()).max_concurrency
        calls = [
            partial(self.ainvoke, given, said, **options) for given, said in zip(inputs, configs, strict=True)
        ]
        return await all_of(calls, limit=limit, keep_errors=return_exceptions)

    def astream(
        self,
        input: GraphInput[InputT],
        config: Config | None = None,
        *,
        context: GraphContext[ContextT] = None,
        stream_mode: StreamMode | Sequence[StreamMode] | None = None,
        output_keys: str | Sequence[str] | None = None,
        interrupt_before: Sequence[str] | None = None,
        interrupt_after: Sequence[str] | None = None,
        durability: Durability | None = None,
        subgraphs: bool = False,
        debug: bool | None = None,
    ) -> AsyncIterator[Any]:
        """Run the graph and yield its events as they happen. Raises the errors of `ainvoke`.

        Leaving the iterator, in whatever way, cancels the run. Finished tasks are stored.

        Args:
            stream_mode: "updates" yields `{node: update}` when a task ends; "values" the output
                whenever a superstep changed it; "custom" the values that nodes give to their stream
                writer. A list of modes yields pairs `(mode, payload)`. Default: the graph's own mode,
                which is "updates" for a StateGraph.
            subgraphs: yield the events of child graphs as well. Every event then begins with its namespace, a
                tuple, which is empty for this graph.
            output_keys: the channels to show, or a single one, whose bare value is shown; default: the
                graph's `stream_channels`.
        """
        modes = self.stream_mode if stream_mode is None else stream_mode
        checked_modes(modes)
        keys = self.stream_channels if output_keys is None else output_keys
        stops = self._breakpoints(interrupt_before, interrupt_after)
        request = self._request(input, config, context, keys, durability, debug=debug, breakpoints=stops)

        def begin() -> Hosted[Any]:
            buffer = Buffer(self.most_unread)
            reader = buffer.reader(modes, subgraphs=subgraphs)
            return Hosted(partial(self._run_into, buffer, request), reader.batch, buffer.close)

        return hosted(begin)

    async def _run_into(self, buffer: Buffer, request: RunRequest) -> Any:
        """Run the graph, with its events put into a buffer."""
        return await run_graph(await resumed_request(request.read_through(buffer)))

    async def acontinue(self, orphan: Orphan, *, context: GraphContext[ContextT] = None) -> Any:
        """Continue a run whose process is gone, and return its output; `recover` finds such runs.

        Args:
            context: the run's context, which is not stored.

        Raises the errors of `ainvoke`, and OrphanTakenError if the run is not an orphan any more.
        """
        request = self._request(None, None, context, None, orphan.durability)
        return await run_graph(request.continuing(orphan))

    async def aget_state(self, config: Config) -> StateSnapshot:
        """Return the thread as it is now, or as it was at the checkpoint that the config names."""
        settings = parse_config(merge_configs(self.config, config) if self.config else config)
        return await read_snapshot(self.plan, self._saver(), settings, require_thread(settings))

    def _breakpoints(self, before: Sequence[str] | None, after: Sequence[str] | None) -> Breakpoints | None:
        return breakpoints(before or self.interrupt_before_nodes, after or self.interrupt_after_nodes)

    def get_input_jsonschema(self) -> dict[str, Any]:
        """Return the JSON schema of an input."""
        return self._json_schema("input") or {}

    def get_output_jsonschema(self) -> dict[str, Any]:
        """Return the JSON schema of a result."""
        return self._json_schema("output") or {}

    def get_context_jsonschema(self) -> dict[str, Any] | None:
        """Return the JSON schema of `context`; None if the graph has no context schema."""
        return self._json_schema("context")

    def _json_schema(self, what: Described) -> dict[str, Any] | None:
        return None if self.plan.json_schema is None else self.plan.json_schema(what)

    async def aclear_cache(self, nodes: Sequence[str] | None = None) -> None:
        """Remove the cached results of these nodes, or of all.

        This includes those of all graphs of this name on this cache, and of all versions of their code.

        Raises GraphValidationError if the graph has no cache, or no such node.
        """
        if self.cache is None:
            raise GraphValidationError("No cache is set for this graph. Cannot clear cache.")
        if nodes is None:
            await self.cache.aclear([namespace_of(self.name)])
            return
        for node in nodes:
            if node not in self.plan.nodes:
                raise GraphValidationError(
                    f"Graph {self.name!r} has no node {node!r}." + nearest(node, self.plan.nodes)
                )
        await self.cache.aclear([namespace_of(self.name, node) for node in nodes])

    def _saver(self) -> BaseCheckpointSaver:
        if not isinstance(self.checkpointer, BaseCheckpointSaver):
            raise GraphValidationError(
                "No checkpointer set: this graph keeps no threads. Compile it with compile(checkpointer=...)."
            )
        return self.checkpointer

    def _request(
        self,
        input: Any,
        config: Config | None,
        context: Any,
        output_keys: str | Sequence[str] | None,
        durability: Durability | None,
        *,
        debug: bool | None = None,
        breakpoints: Breakpoints | None = None,
    ) -> RunRequest:
        return RunRequest(
            plan=self.plan,
            input=input,
            scope=scope_of(self, config, context, self._clock, debug),
            saver=self.checkpointer,
            durability=durability_of(self, durability),
            output_keys=output_keys_of(self.plan, output_keys),
            breakpoints=breakpoints,
        )

    def home(self) -> Any:
        """Return the event loop that sync calls are made on; None if any will do."""
        own = getattr(self.checkpointer, "home", None) or getattr(self.cache, "home", None)
        task = running_task()
        return own if own is not None or task is None else task.scope.loop

    invoke = sync_of(ainvoke)
    stream = sync_iterator_of(astream)
    batch = sync_of(abatch)
    get_state = sync_of(aget_state)
    clear_cache = sync_of(aclear_cache)
