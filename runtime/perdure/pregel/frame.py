"""What a graph that can be run is made of, and how it is made."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from copy import copy
from datetime import timedelta
from functools import cached_property
from typing import Any, Self, TypedDict, Unpack

from perdure.cache.base import BaseCache
from perdure.channels.base import BaseChannel
from perdure.checkpoint.base import BaseCheckpointSaver
from perdure.clock import SYSTEM_CLOCK, Clock
from perdure.config import Config, merge_configs
from perdure.constants import DEFAULT_GRAPH_NAME, START
from perdure.data import CachePolicy, RetryPolicy, StreamMode
from perdure.errors import GraphValidationError
from perdure.pregel.plan.assembly import Parts, assemble, built, check
from perdure.pregel.plan.builder import NodeBuilder, PregelNode
from perdure.pregel.plan.names import EVERY_NODE, names_of, nearest
from perdure.pregel.plan.plan import NodeSpec, Plan
from perdure.pregel.plan.policies import checked_cache_policy, retry_policies


class Options(TypedDict, total=False):
    """What the constructor of a Frame takes that does not go into its plan."""

    checkpointer: BaseCheckpointSaver | bool | None
    store: Any
    cache: BaseCache | None
    clock: Clock
    stream_mode: StreamMode
    step_timeout: float | timedelta | None
    interrupt_before_nodes: str | Sequence[str]
    interrupt_after_nodes: str | Sequence[str]
    context_schema: Any
    debug: bool


class Frame:
    """Everything about a Pregel but running it.

    Attributes:
        plan: the graph as it is run.
        checkpointer: where threads are kept.
        store, cache: what nodes are given as the run's store; where their results are cached.
        stream_mode: what `astream` yields if it is not told.
        step_timeout: how long a superstep may take, in seconds or as a timedelta; None: as long as it does.
        interrupt_before_nodes, interrupt_after_nodes: names of nodes, or "*" for all.
        retry_policy, cache_policy: how nodes run that do not say it themselves.
        context_schema: what the run's context is.
        debug: whether runs are told of, superstep by superstep.
        builder: the description that it was compiled from, if there is one.
        config: what `with_config` bound it to.
        subgraphs: the compiled graphs among its nodes, by name.
    """

    def __init__(
        self,
        *,
        nodes: Mapping[str, PregelNode | NodeBuilder],
        channels: Mapping[str, BaseChannel[Any, Any]],
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
        context_schema: Any = None,
        name: str = DEFAULT_GRAPH_NAME,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Make a graph of nodes that subscribe to channels.

        Args:
            nodes: by name; what NodeBuilder describes.
            channels: by name; the graph makes its own, empty, like these.
            input_channels: the one that takes whatever the graph is invoked with; or several, and the input
                is a mapping of them.
            output_channels: the one whose bare value is the result; or several, and it is a dict of those
                that have a value.
            stream_channels: what streams and `aget_state` show, likewise; default: all channels.
            auto_validate: whether to check now that all of it hangs together; else at the first use.
            name: what runs are recorded under, and found by after a crash.

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
            interrupt_nodes=_listed(interrupt_before_nodes) + _listed(interrupt_after_nodes),
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
        self.subgraphs: Mapping[str, Any] = {}
        self.builder: Any = None
        self.config: Config | None = None
        self._clock = clock
        if auto_validate:
            self.validate()

    @classmethod
    def from_plan(cls, plan: Plan, **options: Unpack[Options]) -> Self:
        """A graph that runs this plan; its streams yield "updates", if nothing else is said."""
        options.setdefault("stream_mode", "updates")
        graph = cls(
            nodes={}, channels={}, input_channels=(), output_channels=(), auto_validate=False, **options
        )
        graph.plan = plan
        return graph

    @cached_property
    def plan(self) -> Plan:
        """The graph as it is run. Raises GraphValidationError if its parts do not hang together."""
        check(self._parts)
        return assemble(self._parts)

    def validate(self) -> Self:
        """Check that the graph's parts hang together, if that was put off. Raises GraphValidationError."""
        _ = self.plan
        return self

    @property
    def name(self) -> str:
        return self.plan.name

    def get_name(self) -> str:
        """What a node is called that is this graph, where `add_node` is not told otherwise."""
        return self.plan.name

    @property
    def nodes(self) -> Mapping[str, NodeSpec]:
        """The nodes as they are run, by name; START among them where there is one."""
        return self.plan.nodes

    @property
    def channels(self) -> Mapping[str, BaseChannel[Any, Any]]:
        """The channels, empty, by name; those that the engine added among them."""
        return self.plan.channels

    @property
    def trigger_to_nodes(self) -> Mapping[str, Sequence[str]]:
        """Which nodes a channel can start."""
        return self.plan.triggered

    @property
    def input_channels(self) -> str | Sequence[str]:
        """Where an input is written."""
        return START if START in self.plan.nodes else self._parts.input_channels

    @property
    def output_channels(self) -> str | Sequence[str]:
        """What a result shows."""
        return self.plan.output_keys

    @property
    def stream_channels(self) -> str | Sequence[str]:
        """What a stream shows."""
        return self.plan.output_keys if self.plan.stream_keys is None else self.plan.stream_keys

    def copy(self, update: Mapping[str, Any] | None = None) -> Self:
        """This graph again, with other values for the attributes in `update`."""
        copied = copy(self)
        for name, value in (update or {}).items():
            if name not in self.__dict__:
                raise GraphValidationError(
                    f"A compiled graph has no attribute {name!r} that could be replaced."
                    + nearest(name, vars(self))
                )
            setattr(copied, name, value)
        return copied

    def with_config(self, config: Config | None = None, **more: Any) -> Self:
        """This graph, bound to a config. What a call says counts more, what a surrounding run says less.

        Tags are joined, metadata and configurable merged key by key. Keywords are more keys of the config.
        """
        return self.copy({"config": merge_configs(self.config, merge_configs(config, more))})

    def get_subgraphs(self, namespace: str | None = None, recurse: bool = False) -> Iterator[tuple[str, Any]]:
        """The compiled graphs that were added as nodes, with the names of these.

        Args:
            namespace: only the one of this name; of a graph in a graph, the names joined by "|".
            recurse: those in these graphs as well.
        """
        for name, graph in self.subgraphs.items():
            if namespace is None or namespace == name:
                yield name, graph
            inner = None if namespace is None else namespace.removeprefix(f"{name}|")
            if recurse if namespace is None else inner != namespace:
                for below, found in graph.get_subgraphs(inner, recurse):
                    yield f"{name}|{below}", found

    async def aget_subgraphs(
        self, namespace: str | None = None, recurse: bool = False
    ) -> AsyncIterator[tuple[str, Any]]:
        """What `get_subgraphs` yields."""
        for found in self.get_subgraphs(namespace, recurse):
            yield found


def _listed(names: str | Sequence[str]) -> tuple[str, ...]:
    """The nodes that are named; "*" names none in particular."""
    return () if names == EVERY_NODE else names_of(names)
