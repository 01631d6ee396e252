"""The making of a Plan from the nodes and channels of a Pregel."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.channels.base import BaseChannel
from perdure.channels.topic import Topic
from perdure.constants import END, MISSING, RESERVED_NODE_NAMES, START, TASKS, is_trigger
from perdure.data import CachePolicy, RetryPolicy, Send
from perdure.errors import EmptyInputError, GraphValidationError, InvalidUpdateWarning
from perdure.pregel.plan.builder import ChannelWrite, NodeBuilder, PregelNode
from perdure.pregel.plan.names import check_characters, names_of, nearest
from perdure.pregel.plan.plan import Accept, InputReader, NodeSpec, Plan, Writer, child_of
from perdure.pregel.plan.policies import policies_of

Names = str | Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts that a Pregel is made of; see its constructor."""

    name: str
    nodes: Mapping[str, PregelNode]
    channels: Mapping[str, BaseChannel]
    input_channels: Names
    output_channels: Names
    stream_channels: Names | None
    interrupt_nodes: tuple[str, ...]
    retry_policy: tuple[RetryPolicy, ...]
    cache_policy: CachePolicy | None


def built(nodes: Mapping[str, PregelNode | NodeBuilder]) -> dict[str, PregelNode]:
    """Build the nodes that are still being described.

    Raises GraphValidationError for a node that is neither a PregelNode nor a NodeBuilder.
    """
    for name, node in nodes.items():
        if not isinstance(node, NodeBuilder | PregelNode):
            raise GraphValidationError(
                f"Node {name!r} is {node!r}; expected a NodeBuilder, such as "
                "NodeBuilder().subscribe_only('channel').do(function)."
            )
    return {name: node.build() if isinstance(node, NodeBuilder) else node for name, node in nodes.items()}


# Checks


def check(parts: Parts) -> None:
    """Refuse parts that do not fit together. Raises GraphValidationError."""
    for name in parts.nodes:
        _check_node_name(name)
    for name, channel in parts.channels.items():
        if name in RESERVED_NODE_NAMES - {START, END} or is_trigger(name):
            raise GraphValidationError(f"Channel {name!r} is reserved: the engine uses this name itself.")
        if not isinstance(channel, BaseChannel):
            raise GraphValidationError(
                f"Channel {name!r} is {channel!r}; expected an instance, such as LastValue(str)."
            )
    for name, node in parts.nodes.items():
        _check_node(parts, name, node)
    _check_input(parts)
    for shown in (*names_of(parts.output_channels), *names_of(parts.stream_channels or ())):
        _require_known(parts, shown, f"Output channel {shown!r}")
    for name in parts.interrupt_nodes:
        if name not in parts.nodes:
            raise GraphValidationError(f"Node {name!r} not in nodes." + nearest(name, parts.nodes))


def _check_node_name(name: str) -> None:
    if name in RESERVED_NODE_NAMES:
        raise GraphValidationError(f"Node name {name!r} is reserved: the engine uses it itself.")
    check_characters(name)


def _check_node(parts: Parts, name: str, node: PregelNode) -> None:
    if not node.triggers:
        raise GraphValidationError(
            f"Node {name!r} subscribes to no channel, so nothing would ever start it. Call subscribe_to or "
            "subscribe_only."
        )
    for channel in names_of(node.channels):
        _require_known(parts, channel, f"Node {name} reads channel {channel!r}")
    for channel in node.triggers:
        _require_known(parts, channel, f"Node {name}: Subscribed channel {channel!r}")
    for write in node.writes:
        _require_known(parts, write.channel, f"Node {name} writes to channel {write.channel!r}")


def _require_known(parts: Parts, channel: str, what: str) -> None:
    if channel not in parts.channels:
        raise GraphValidationError(f"{what} not in known channels: {', '.join(sorted(parts.channels))}.")


def _check_input(parts: Parts) -> None:
    channels = names_of(parts.input_channels)
    for channel in channels:
        _require_known(parts, channel, f"Input channel {channel!r}")
    subscribed = {trigger for node in parts.nodes.values() for trigger in node.triggers}
    if subscribed.isdisjoint(channels):
        raise GraphValidationError(
            f"Input channel {parts.input_channels} is not subscribed to by any node."
            if isinstance(parts.input_channels, str)
            else f"None of the input channels {', '.join(channels)} are subscribed to by any node."
        )


# Assembly


def assemble(parts: Parts) -> Plan:
    """Make the plan of parts that were checked."""
    channels = {key: _prototype(key, channel) for key, channel in parts.channels.items()}
    state_keys = frozenset(channels)
    channels[TASKS] = Topic(Send, key=TASKS)
    return Plan(
        name=parts.name,
        nodes={name: _spec(parts, name, node) for name, node in parts.nodes.items()},
        channels=channels,
        state_keys=state_keys,
        input_keys=frozenset(names_of(parts.input_channels)),
        output_keys=_one_or_several(parts.output_channels),
        stream_keys=_one_or_several(parts.stream_channels or tuple(parts.channels)),
        accept=_accept_one(parts.input_channels)
        if isinstance(parts.input_channels, str)
        else _accept_several(parts.name, tuple(parts.input_channels)),
    )


def _one_or_several(names: Names) -> str | tuple[str, ...]:
    return names if isinstance(names, str) else tuple(names)


def _prototype(key: str, channel: BaseChannel) -> BaseChannel:
    """Copy a channel for this graph: empty, and with its name."""
    prototype = channel.from_checkpoint(MISSING)
    prototype.key = key
    return prototype


def _spec(parts: Parts, name: str, node: PregelNode) -> NodeSpec:
    return NodeSpec(
        name=name,
        action=node.action or _hand_on,
        calling=node.calling,
        triggers=node.triggers,
        reader=_reader(node.channels),
        writer=_writer(node.writes),
        policies=policies_of(
            name,
            node.calling,
            retry=node.retry_policies or parts.retry_policy,
            timeout=node.timeout,
            cache=node.cache_policy or parts.cache_policy,
        ),
        tags=node.tags,
        metadata=node.metadata,
        child=child_of(node.action),
    )


def _reader(channels: str | tuple[str, ...]) -> InputReader:
    return InputReader(bare=channels) if isinstance(channels, str) else InputReader(keys=channels)


def _hand_on(given: Any) -> Any:
    return given


def _writer(entries: tuple[ChannelWrite, ...]) -> Writer:
    def writes(result: Any) -> list[tuple[str, Any]]:
        made = ((channel, make(result)) for channel, make in entries)
        return [(channel, value) for channel, value in made if value is not MISSING]

    return writes


def _accept_one(channel: str) -> Accept:
    return lambda given: {channel: given}


def _accept_several(name: str, channels: tuple[str, ...]) -> Accept:
    def accept(given: Any) -> Mapping[str, Any]:
        if not isinstance(given, Mapping):
            raise TypeError(
                f"Expected chunk to be a dict, got {type(given).__name__}: graph {name!r} has several input "
                f"channels, {', '.join(channels)}, and its input is a mapping of them."
            )
        _warn_of_unknown(name, given, channels)
        accepted = {channel: given[channel] for channel in channels if channel in given}
        if not accepted:
            raise EmptyInputError(
                f"Received no input for {', '.join(channels)}: the input of graph {name!r} is a mapping with "
                "at least one of them."
            )
        return accepted

    return accept


def _warn_of_unknown(name: str, given: Iterable[object], channels: tuple[str, ...]) -> None:
    for key in given:
        if key not in channels:
            warnings.warn(
                f"The input wrote to {key!r}, which is not an input channel of graph {name!r}; the write is "
                "dropped." + nearest(str(key), channels),
                InvalidUpdateWarning,
                stacklevel=2,
            )
