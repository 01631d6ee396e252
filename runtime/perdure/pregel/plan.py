"""A compiled graph: frozen, and with every look-up that a superstep needs already made."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from hashlib import blake2b
from typing import Any

from perdure.channels.base import BaseChannel


class Calling(Enum):
    """How a node's action is called."""

    COROUTINE = auto()
    THREAD = auto()
    INPUT = auto()
    """Not called: the virtual node START, whose result is its input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A conditional edge.

    Attributes:
        path: given the state, says where to go; sync or async, run in place.
        ends: what the path returns to the node meant; None if it returns names of nodes.
    """

    name: str
    path: Callable[[Any], Any]
    ends: Mapping[Hashable, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """A node, ready to run.

    Attributes:
        triggers: channels of which any one, newly available, starts the node.
        edges: the writes by which the node's static edges fire.
    """

    name: str
    action: Callable[[Any], Any]
    calling: Calling
    triggers: tuple[str, ...]
    edges: tuple[tuple[str, Any], ...] = ()
    branches: tuple[Branch, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What compile() makes of a graph.

    Attributes:
        nodes: by name, START first, then in the order in which they were added.
        channels: empty prototypes, by name, which runs copy.
        triggered: which nodes a channel can start.
        state_keys: the channels that make up the state.
        input_keys, output_keys: those that an input may write and a result shows.
        untracked: state keys that are never stored.
        plain: state keys that keep the last value, and have nothing else to keep.
        triggers: channels that carry no value: they are raised, or not.
        barriers: channels that change when a task that they triggered has run.
        appended: reduced keys whose reducer changes nothing of the list it appends to.
        reduced: all keys with a reducer.
        initial: channels that have a value before anything is written.
        signature: changes when the nodes or channels do.
    """

    name: str
    nodes: Mapping[str, NodeSpec]
    channels: Mapping[str, BaseChannel[Any, Any]]
    triggered: Mapping[str, tuple[str, ...]]
    state_keys: frozenset[str]
    input_keys: frozenset[str]
    output_keys: tuple[str, ...]
    untracked: frozenset[str]
    plain: frozenset[str]
    triggers: frozenset[str]
    barriers: frozenset[str]
    appended: frozenset[str]
    reduced: frozenset[str]
    initial: tuple[str, ...]
    signature: str


def index_triggers(nodes: Mapping[str, NodeSpec]) -> dict[str, tuple[str, ...]]:
    """Which nodes each channel can start, in the order of `nodes`."""
    index: dict[str, tuple[str, ...]] = {}
    for name, spec in nodes.items():
        for trigger in spec.triggers:
            index[trigger] = (*index.get(trigger, ()), name)
    return index


def sign(nodes: Mapping[str, NodeSpec], channels: Mapping[str, BaseChannel[Any, Any]]) -> str:
    """A short text that two graphs share only if they have the same nodes and channels."""
    digest = blake2b(digest_size=8)
    for name in (*sorted(nodes), "", *(f"{key}={type(channels[key]).__name__}" for key in sorted(channels))):
        digest.update(name.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()
