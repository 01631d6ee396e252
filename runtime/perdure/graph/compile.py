"""From a description to a Plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure.channels.base import BaseChannel
from perdure.channels.ephemeral_value import EphemeralValue
from perdure.channels.last_value_after_finish import LastValueAfterFinish
from perdure.channels.named_barrier_value import NamedBarrierValue
from perdure.channels.named_barrier_value_after_finish import NamedBarrierValueAfterFinish
from perdure.channels.topic import Topic
from perdure.constants import END, START, TASKS, branch_channel, join_channel
from perdure.data import Send
from perdure.graph.description import Description, StateBranch
from perdure.graph.schema import channels_of
from perdure.pregel.plan import Branch, Calling, NodeSpec, Plan, Reader, index_triggers, sign, sort_channels

_READ_INPUT = Reader(bare=START)


def plan_of(graph: Description, name: str) -> Plan:
    """The plan of a graph that was found to hang together."""
    channels = _channels(graph)
    nodes = _nodes(graph)
    state_keys = frozenset(graph.channels)
    return Plan(
        name=name,
        nodes=nodes,
        channels=channels,
        triggered=index_triggers(nodes),
        state_keys=state_keys,
        input_keys=frozenset(channels_of(graph.input_schema)),
        output_keys=tuple(channels_of(graph.output_schema)),
        triggers=frozenset(branch_channel(name) for name, node in graph.nodes.items() if not node.defer),
        **sort_channels(channels, state_keys),
        signature=sign(nodes, channels),
    )


def _channels(graph: Description) -> dict[str, BaseChannel[Any, Any]]:
    channels = {key: channel.copy() for key, channel in graph.channels.items()}
    channels[START] = EphemeralValue(Any, key=START)
    channels[TASKS] = Topic(Send, key=TASKS)
    for name, node in graph.nodes.items():
        key = branch_channel(name)
        channels[key] = LastValueAfterFinish(Any, key) if node.defer else EphemeralValue(Any, False, key=key)
    for starts, end in sorted(graph.waiting_edges):
        if end != END:
            key = join_channel(starts, end)
            kind = NamedBarrierValueAfterFinish if graph.nodes[end].defer else NamedBarrierValue
            channels[key] = kind(str, frozenset(starts), key=key)
    return channels


def _nodes(graph: Description) -> dict[str, NodeSpec]:
    specs = {START: _spec(graph, START, lambda given: given, Calling.INPUT, (START,), _READ_INPUT)}
    for name, node in graph.nodes.items():
        joins = (join_channel(starts, end) for starts, end in sorted(graph.waiting_edges) if end == name)
        specs[name] = _spec(graph, name, node.action, node.calling, (branch_channel(name), *joins))
    return specs


def _spec(
    graph: Description,
    name: str,
    action: Callable[..., Any],
    calling: Calling,
    triggers: tuple[str, ...],
    reader: Reader | None = None,
) -> NodeSpec:
    ends = sorted(end for start, end in graph.edges if start == name and end != END)
    joins = [
        (join_channel(starts, end), name)
        for starts, end in sorted(graph.waiting_edges)
        if name in starts and end != END
    ]
    return NodeSpec(
        name=name,
        action=action,
        calling=calling,
        triggers=triggers,
        edges=(*((branch_channel(end), None) for end in ends), *joins),
        branches=tuple(map(_branch, graph.branches.get(name, {}).values())),
        reader=reader,
    )


def _branch(branch: StateBranch) -> Branch:
    return Branch(name=branch.name, path=branch.path, ends=branch.ends, injects=branch.injects)
