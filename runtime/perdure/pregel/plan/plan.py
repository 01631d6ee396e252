"""A compiled graph: frozen, and with every look-up that a superstep needs already made."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from hashlib import blake2b
from typing import Any, Literal, TypeAlias

from perdure.channels.base import BaseChannel
from perdure.channels.binop import BinaryOperatorAggregate
from perdure.channels.delta import DeltaChannel
from perdure.channels.ephemeral_value import EphemeralValue
from perdure.channels.last_value import LastValue
from perdure.channels.untracked_value import UntrackedValue
from perdure.constants import START, is_trigger
from perdure.data import CachePolicy, RetryPolicy, TimeoutPolicy
from perdure.managed import ManagedValue

Injected = Literal["config", "writer", "store", "previous", "runtime", "error"]
"""A thing that an action can ask for by the name of a parameter, beside its input."""

Injections: TypeAlias = tuple[tuple[str, Injected], ...]
"""Parameters of an action, each with the thing that it is given."""


Described = Literal["input", "output", "context"]
"""What of a graph has a JSON schema."""


class Calling(Enum):
    """How a node's action is called."""

    COROUTINE = auto()
    THREAD = auto()
    INPUT = auto()
    """Not called: the virtual node START, whose result is its input."""
    CACHED = auto()
    """Not called: its result was found in the cache, and its writer writes that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputReader:
    """How an input is made of the state. None in place of a InputReader gives the whole state as a dict.

    Attributes:
        keys: the state keys that it has, in their order, where they have a value; None: all.
        bare: the one channel whose value is the whole input.
        managed: keys whose value is computed.
        build: makes of the dict what a node of this schema is given.
    """

    keys: Collection[str] | None = None
    bare: str | None = None
    managed: tuple[tuple[str, type[ManagedValue]], ...] = ()
    build: Callable[[dict[str, Any]], Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """How a node is run, where it is not simply called.

    Attributes:
        retry: the first policy that matches an error decides.
        handler: the node that is run in this one's place when it has failed.
    """

    retry: tuple[RetryPolicy, ...] = ()
    timeout: TimeoutPolicy | None = None
    cache: CachePolicy | None = None
    handler: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A conditional edge.

    Attributes:
        path: given the state, says where to go; sync or async, run in place.
        ends: what the path returns to the node meant; None if it returns names of nodes.
        reader: how the path's input is made.
        sees_result: whether the path also sees what the node returned under keys that the state lacks.
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
        triggers: channels of which any one, newly available, starts the node.
        edges: the writes by which the node's static edges fire.
        reader: how the action's input is made.
        injects: parameters of the action that are given something else than its input.
        writer: makes writes of what the action returned, edges not included; None: an update of the state.
        policies: None for a node that is simply called.
        tags, metadata: what its user says of it.
    """

    name: str
    action: Callable[..., Any]
    calling: Calling
    triggers: tuple[str, ...]
    edges: tuple[tuple[str, str | None], ...] = ()
    branches: tuple[Branch, ...] = ()
    reader: InputReader | None = None
    injects: Injections = ()
    writer: Callable[[Any], list[tuple[str, Any]]] | None = None
    policies: Policies | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What compile() makes of a graph.

    Attributes:
        nodes: by name, in the order in which they were added; START first, where there is one: without it an
            input is written to its channels directly.
        channels: empty prototypes, by name, which runs copy.
        state_keys: the channels that make up the state.
        input_keys: those that an input may write.
        output_keys: those that a result shows; a single name: the result is its bare value.
        stream_keys: those that a stream and a thread at rest show; None: the output's, and all.
        accept: makes a mapping of keys of an input, or refuses it; None: the input is such a mapping.
        validators: state keys whose values are checked, and may be changed, when they are written.
        strict: whether an update that names an unknown key is an error.
        bare: whether the state is one value, which nodes return as it is.
        context: makes of the context that a run is called with what nodes are given; None: that itself.
        json_schema: the JSON schema of the input, the output or the context.
        renamed: what nodes are called now, by the name under which threads may have been stored.

    What follows from nodes and channels:

        triggered: which nodes a channel can start.
        cached: the nodes whose results may be cached, and how.
        untracked: state keys that are never stored.
        plain: state keys that keep the last value, and have nothing else to keep.
        triggers: channels that carry no value: they are raised, or not.
        barriers: channels that change when a task that they triggered has run.
        deferred: channels that change when nothing else is left to do.
        appended: reduced keys whose reducer changes nothing of the list it appends to.
        reduced: all keys with a reducer.
        initial: channels that have a value before anything is written.
        defaulted: those whose value is a declared default, of which every run makes its own.
        signature: changes when the nodes or channels do.
    """

    name: str
    nodes: Mapping[str, NodeSpec]
    channels: Mapping[str, BaseChannel]
    state_keys: frozenset[str]
    input_keys: frozenset[str]
    output_keys: str | tuple[str, ...]
    stream_keys: str | tuple[str, ...] | None = None
    accept: Callable[[Any], Mapping[str, Any]] | None = None
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
    """Which nodes each channel can start, in the order of `nodes`."""
    index: dict[str, tuple[str, ...]] = {}
    for name, spec in nodes.items():
        for trigger in spec.triggers:
            index[trigger] = (*index.get(trigger, ()), name)
    return index


def _sign(nodes: Mapping[str, NodeSpec], channels: Mapping[str, BaseChannel]) -> str:
    """A short text that two graphs share only if they have the same nodes and channels.

    Whether a node is deferred makes no difference, as it makes none to what a thread has stored.
    """
    digest = blake2b(digest_size=8)
    kinds = (key if is_trigger(key) else f"{key}={type(channels[key]).__name__}" for key in sorted(channels))
    for name in (*sorted(nodes), "", *kinds):
        digest.update(name.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()
