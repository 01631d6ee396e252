"""From a description to a Plan."""

from __future__ import annotations

import operator
from typing import Any

from perdure.channels.base import BaseChannel
from perdure.channels.binop import BinaryOperatorAggregate
from perdure.channels.ephemeral_value import EphemeralValue
from perdure.channels.last_value import LastValue
from perdure.channels.named_barrier_value import NamedBarrierValue
from perdure.channels.topic import Topic
from perdure.channels.untracked_value import UntrackedValue
from perdure.constants import END, ROOT, START, TASKS, branch_channel, join_channel
from perdure.data import Send
from perdure.graph.description import Description, StateBranch, StateNode
from perdure.graph.policies import handlers_of, policies_of
from perdure.graph.runnables import run_below
from perdure.graph.schema import channels_of
from perdure.pregel.plan import Branch, Calling, NodeSpec, Plan, Policies, Reader, index_triggers, sign

_READ_INPUT = Reader(bare=START)
_START = StateNode(action=lambda given: given, calling=Calling.INPUT)


def plan_of(graph: Description, name: str) -> Plan:
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
    specs = {START: _spec(graph, START, _START, (START,), _READ_INPUT)}
    handlers = handlers_of(graph)
    for name, node in graph.nodes.items():
        joins = (join_channel(starts, end) for starts, end in sorted(graph.waiting_edges) if end == name)
        policies = policies_of(name, node, graph.defaults, handlers)
        reader = None if node.subgraph is None else _reader_below(graph, node)
        specs[name] = _spec(graph, name, node, (branch_channel(name), *joins), reader, policies)
    return specs


def _reader_below(graph: Description, node: StateNode) -> Reader | None:
    """How the input of a compiled graph is made: of the keys that it shares with the state around it."""
    if node.input_schema is not None or ROOT in graph.channels:
        return None
    return Reader(keys=frozenset(node.subgraph.plan.input_keys & graph.channels.keys()))


def _spec(
    graph: Description,
    name: str,
    node: StateNode,
    triggers: tuple[str, ...],
    reader: Reader | None = None,
    policies: Policies | None = None,
) -> NodeSpec:
    ends = sorted(end for start, end in graph.edges if start == name and end != END)
    joins = [
        (join_channel(starts, end), name)
        for starts, end in sorted(graph.waiting_edges)
        if name in starts and end != END
    ]
    return NodeSpec(
        name=name,
        action=node.action if node.subgraph is None else run_below(node.subgraph, graph.channels),
        calling=node.calling,
        triggers=triggers,
        edges=(*((branch_channel(end), None) for end in ends), *joins),
        branches=tuple(map(_branch, graph.branches.get(name, {}).values())),
        reader=reader,
        injects=node.injects,
        policies=policies,
        metadata=node.metadata,
    )


def _branch(branch: StateBranch) -> Branch:
    return Branch(name=branch.name, path=branch.path, ends=branch.ends, injects=branch.injects)
