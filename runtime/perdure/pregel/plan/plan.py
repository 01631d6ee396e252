"""Plan: a compiled graph, frozen, with every look-up that a superstep needs already made."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Coroutine, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from hashlib import blake2b
from typing import Any, Literal, Protocol, TypeAlias

from perdure.channels.base import BaseChannel
from perdure.channels.binop import BinaryOperatorAggregate
from perdure.channels.delta import DeltaChannel
from perdure.channels.ephemeral_value import EphemeralValue
from perdure.channels.last_value import LastValue
from perdure.channels.untracked_value import UntrackedValue
from perdure.constants import ROOT, START, is_trigger
from perdure.data import CachePolicy, RetryPolicy, TimeoutPolicy
from perdure.managed import ManagedValue

Injected = Literal["config", "writer", "store", "previous", "runtime", "error"]
"""A thing that an action can ask for by the name of a parameter, beside its input."""

Injections: TypeAlias = tuple[tuple[str, Injected], ...]
"""Parameters of an action, each with the thing that it is given."""


Described = Literal["input", "output", "context"]
"""A part of a graph that has a JSON schema."""


Writer: TypeAlias = Callable[[Any], list[tuple[str, Any]]]
"""A function that makes writes, channels and values, of a node's result."""

Accept: TypeAlias = Callable[[Any], Mapping[str, Any]]
"""A function that turns an input into a mapping of state keys."""


class Calling(Enum):
    """A way to get a node's result."""

    COROUTINE = auto()
    THREAD = auto()
    INPUT = auto()
    """The action is not called: the input is the result, as of the virtual node START."""
    CACHED = auto()
    """The action is not called: its result was found in the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputReader:
    """A rule for making a node's input of the state. Without one, the input is the whole state as a dict.

    Attributes:
        keys: the state keys in the input, in this order, where they have a value; None: all.
        bare: the one channel whose value is the whole input.
        managed: the keys whose value is computed.
        build: a function that makes an instance of the node's schema of the dict.
    """

    keys: Collection[str] | None = None
    bare: str | None = None
    managed: tuple[tuple[str, type[ManagedValue]], ...] = ()
    build: Callable[[dict[str, Any]], Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """The policies of a node that is not simply called.

    Attributes:
        retry: the retry policies; the first one that matches an error decides.
        handler: the node that runs in place of this one when it has failed.
    """

    retry: tuple[RetryPolicy, ...] = ()
    timeout: TimeoutPolicy | None = None
    cache: CachePolicy | None = None
    handler: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A conditional edge.

    Attributes:
        path: a sync or async function that chooses the destinations; it runs on the event loop.
        ends: the destinations, by the values that the path returns; None: it returns names of nodes.
        reader: the rule for making the path's input.
        sees_result: whether the path also sees keys of the node's result that the state does not have.
        injects: parameters of the path that are given something else than its input.
    """

    name: str
    path: Callable[..., Any]
    ends: Mapping[Hashable, str] | None = None
    reader: InputReader | None = None
    sees_result: bool = False
    injects: Injections = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """A node, ready to run.

    Attributes:
        action: a function of the input and of the parameters that `injects` names.
        calling: the way in which the action is called.
        triggers: channels; the node starts when any of them becomes available.
        edges: the writes by which the node's static edges fire.
        branches: its conditional edges.
        reader: the rule for making the action's input.
        injects: parameters of the action that are given something else than its input.
        writer: a function that makes writes of the action's result, edges not included; None: the result is
            an update of the state.
        policies: None for a node that is simply called.
        tags, metadata: its user's part of its config.
        child: the compiled graph that the node is, if it is one; `action` runs it.
    """

    name: str
    action: Callable[..., Any]
    calling: Calling
    triggers: tuple[str, ...]
    edges: tuple[tuple[str, str | None], ...] = ()
    branches: tuple[Branch, ...] = ()
    reader: InputReader | None = None
    injects: Injections = ()
    writer: Writer | None = None
    policies: Policies | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    child: ChildGraph | None = None


class CompiledGraph(Protocol):
    """A graph that a node can be."""

    @property
    def plan(self) -> Plan:
        """The graph as it is run."""
        ...

    def ainvoke(
        self, input: Any, *, output_keys: str | Sequence[str] | None = None
    ) -> Coroutine[Any, Any, Any]:
        """Run the graph and return the keys of its output that are named; None: all."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildGraph:
    """A compiled graph that is a node, and the part of its state that it shares with the graph around it.

    Attributes:
        takes: the keys that it is given of its node's input; None: the whole input.
        returns: the keys of its output that its node writes, or one, whose bare value it writes; None: all.
    """

    graph: CompiledGraph
    takes: frozenset[str] | None = None
    returns: str | tuple[str, ...] | None = None

    @classmethod
    def sharing(cls, graph: CompiledGraph, keys: Collection[str]) -> ChildGraph:
        """Return a child graph that shares those of `keys` that it has, too.

        If either state is one bare value, all of it is passed.

        Args:
            keys: the keys of the state around it.
        """
        takes, output = graph.plan.input_keys, graph.plan.output_keys
        whole = isinstance(output, str) or ROOT in keys
        returns = output if whole else tuple(key for key in output if key in keys)
        return cls(graph=graph, takes=None if ROOT in takes else takes, returns=returns)

    async def run(self, given: Any) -> Any:
        """Run the graph as a node's action."""
        if self.takes is not None and isinstance(given, Mapping):
            given = {key: value for key, value in given.items() if key in self.takes}
        return await self.graph.ainvoke(given, output_keys=self.returns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A graph as it runs.

    Attributes:
        nodes: by name, in the order in which they were added. START is the first; without it, an input is
            written to its channels directly.
        channels: empty prototypes by name, which runs copy.
        state_keys: the channels that make up the state.
        input_keys: the keys that an input may write.
        output_keys: the keys that a result shows; a single name: the result is its bare value.
        stream_keys: the keys that a stream and a thread at rest show; None: a stream shows the output's, and
            a thread at rest all.
        accept: a function that turns an input into a mapping of keys, or refuses it; None: it is one.
        validators: by state key, functions that check a value that is written, and may change it.
        strict: whether an update that names an unknown key is an error.
        bare: whether the state is one value, which nodes return as it is.
        context: a function that makes the nodes' context of the one that a run is given; None: it is that.
        json_schema: a function that returns the JSON schema of the input, the output or the context.
        renamed: the present names of nodes, by names that stored threads may still use.

    These follow from nodes and channels:

        triggered: the nodes that a channel can start, by channel.
        cached: the cache policies, by node.
        untracked: state keys that are never stored.
        plain: state keys that keep the last value and nothing else.
        triggers: channels that carry no value: they are written, or not.
        barriers: channels that change when a task that they triggered has run.
        deferred: channels that change when nothing else is left to do.
        appended: reduced keys whose reducer only appends to a list.
        reduced: all keys with a reducer.
        initial: channels that have a value before anything is written.
        defaulted: state keys with a declared default, of which every run makes its own.
        signature: a text that changes when the nodes or channels do.
    """

    name: str
    nodes: Mapping[str, NodeSpec]
    channels: Mapping[str, BaseChannel]
    state_keys: frozenset[str]
    input_keys: frozenset[str]
    output_keys: str | tuple[str, ...]
    stream_keys: str | tuple[str, ...] | None = None
    accept: Accept | None = None
    validators: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    strict: bool = False
    bare: bool = False
    context: Callable[[Any], Any] | None = None
    json_schema: Callable[[Described], dict[str, Any] | None] | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)

    triggered: Mapping[str, tuple[str, ...]] = field(init=False)
    cached: Mapping[str, CachePolicy] = field(init=False)
    untracked: frozenset[str] = field(init=False)
    plain: frozenset[str] = field(init=False)
    triggers: frozenset[str] = field(init=False)
    barriers: frozenset[str] = field(init=False)
    deferred: frozenset[str] = field(init=False)
    appended: frozenset[str] = field(init=False)
    reduced: frozenset[str] = field(init=False)
    initial: tuple[str, ...] = field(init=False)
    defaulted: tuple[str, ...] = field(init=False)
    signature: str = field(init=False)

    def __post_init__(self) -> None:
        channels = self.channels
        state = {key: channel for key, channel in channels.items() if key in self.state_keys}
        engine = {key: channel for key, channel in channels.items() if key not in self.state_keys}
        follows = {
            "triggered": _index_triggers(self.nodes),
            "cached": {
                name: spec.policies.cache
                for name, spec in self.nodes.items()
                if name != START and spec.policies is not None and spec.policies.cache is not None
            },
            "untracked": _those(state, lambda channel: isinstance(channel, UntrackedValue)),
            "plain": _those(state, lambda channel: type(channel) is LastValue),
            "triggers": _those(engine, lambda channel: type(channel) is EphemeralValue) - {START},
            "barriers": _those(channels, lambda channel: _overrides(channel, "consume")),
            "deferred": _those(channels, lambda channel: _overrides(channel, "finish")),
            "appended": _those(state, _appends),
            "reduced": _those(state, lambda channel: isinstance(channel, _REDUCERS)),
            "initial": tuple(key for key, channel in channels.items() if channel.is_available()),
            "defaulted": tuple(key for key, channel in state.items() if _has_default(channel)),
            "signature": _sign(self.nodes, channels),
        }
        for name, value in follows.items():
            object.__setattr__(self, name, value)


_REDUCERS = (BinaryOperatorAggregate, DeltaChannel)


def _those(channels: Mapping[str, BaseChannel], meant: Callable[[BaseChannel], bool]) -> frozenset[str]:
    return frozenset(key for key, channel in channels.items() if meant(channel))


def _overrides(channel: BaseChannel, method: str) -> bool:
    return getattr(type(channel), method) is not getattr(BaseChannel, method)


def _has_default(channel: BaseChannel) -> bool:
    return isinstance(channel, BinaryOperatorAggregate) and channel.default is not None


def _appends(channel: BaseChannel) -> bool:
    return isinstance(channel, BinaryOperatorAggregate) and channel.operator is operator.add


def _index_triggers(nodes: Mapping[str, NodeSpec]) -> dict[str, tuple[str, ...]]:
    """List the nodes that each channel can start, in the order of `nodes`."""
    index: dict[str, tuple[str, ...]] = {}
    for name, spec in nodes.items():
        for trigger in spec.triggers:
            index[trigger] = (*index.get(trigger, ()), name)
    return index


def _sign(nodes: Mapping[str, NodeSpec], channels: Mapping[str, BaseChannel]) -> str:
    """Return a short text that two graphs share only if they have the same nodes and channels.

    Deferring a node does not change it, because threads are stored in the same way.
    """
    digest = blake2b(digest_size=8)
    kinds = (key if is_trigger(key) else f"{key}={type(channels[key]).__name__}" for key in sorted(channels))
    for name in (*sorted(nodes), "", *kinds):
        digest.update(name.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()


def child_of(action: object) -> ChildGraph | None:
    """Return the child graph that an action is, or runs; None for any other action."""
    if isinstance(getattr(action, "plan", None), Plan):
        return ChildGraph(graph=action)  # type: ignore[arg-type]  # what has a plan is a compiled graph
    owner = getattr(action, "__self__", None)
    return owner if isinstance(owner, ChildGraph) else None
