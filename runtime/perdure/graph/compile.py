"""From a description to a Plan."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from perdure.channels.base import BaseChannel
from perdure.channels.binop import BinaryOperatorAggregate
from perdure.channels.ephemeral_value import EphemeralValue
from perdure.channels.last_value import LastValue
from perdure.channels.named_barrier_value import NamedBarrierValue
from perdure.channels.topic import Topic
from perdure.channels.untracked_value import UntrackedValue
from perdure.constants import END, START, TASKS, branch_channel, join_channel
from perdure.data import Send
from perdure.graph.description import Description, StateBranch
from perdure.graph.schema import channels_of
from perdure.pregel.plan import Branch, Calling, NodeSpec, Plan, Reader, index_triggers, sign

_READ_INPUT = Reader(bare=START)


def plan_of(
    graph: Description, name: str, *, strict: bool = False, renamed: Mapping[str, str] | None = None
) -> Plan:
    """The plan of a graph that was found to hang together."""
    channels = _channels(graph)
    nodes = _nodes(graph)
    reducers = {
        key: channel.operator
        for key, channel in graph.channels.items()
        if isinstance(channel, BinaryOperatorAggregate)
    }
    return Plan(
        name=name,
        nodes=nodes,
        channels=channels,
        triggered=index_triggers(nodes),
        state_keys=frozenset(graph.channels),
        input_keys=frozenset(channels_of(graph.input_schema)),
        output_keys=tuple(channels_of(graph.output_schema)),
        untracked=frozenset(k for k, c in graph.channels.items() if isinstance(c, UntrackedValue)),
        plain=frozenset(key for key, channel in graph.channels.items() if type(channel) is LastValue),
        triggers=frozenset(map(branch_channel, graph.nodes)),
        barriers=frozenset(
            key for key, channel in channels.items() if isinstance(channel, NamedBarrierValue)
        ),
        appended=frozenset(key for key, reducer in reducers.items() if reducer is operator.add),
        reduced=frozenset(reducers),
        initial=tuple(key for key, channel in channels.items() if channel.is_available()),
        signature=sign(nodes, channels),
        strict=strict,
        renamed=dict(renamed or {}),
    )


def _channels(graph: Description) -> dict[str, BaseChannel[Any, Any]]:
    channels = {key: channel.copy() for key, channel in graph.channels.items()}
    channels[START] = EphemeralValue(Any, key=START)
    channels[TASKS] = Topic(Send, key=TASKS)
    for name in graph.nodes:
        channel = branch_channel(name)
        channels[channel] = EphemeralValue(Any, guard=False, key=channel)
    for starts, end in sorted(graph.waiting_edges):
        if end != END:
            channel = join_channel(starts, end)
            channels[channel] = NamedBarrierValue(str, frozenset(starts), key=channel)
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
        branches=tuple(_branch(graph, name, branch) for branch in graph.branches.get(name, {}).values()),
        reader=reader,
    )


def _branch(graph: Description, source: str, branch: StateBranch) -> Branch:
    """A path without a schema of its own sees what its node does, and what that returned beside the state."""
    schema = branch.input_schema
    if schema is None and source != START:
        schema = graph.nodes[source].input_schema
    reader = None if schema is None else _reader(graph, schema)
    return Branch(
        name=branch.name,
        path=branch.path,
        ends=branch.ends,
        reader=reader,
        sees_result=branch.input_schema is None and (reader is None or reader.build is None),
        injects=branch.injects,
    )


def _reader(graph: Description, schema: Any) -> Reader | None:
    """How an input of a schema is made; None where it is the whole state."""
    keys = frozenset(channels_of(schema))
    return None if keys == graph.channels.keys() else Reader(keys=keys)
