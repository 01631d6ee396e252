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
from perdure.constants import END, ROOT, START, TASKS, branch_channel, join_channel
from perdure.data import Send
from perdure.graph.description import Description, StateBranch
from perdure.graph.inputs import accept_of
from perdure.graph.json_schema import schema_maker
from perdure.graph.readers import context_of, output_of, readers_of
from perdure.graph.validation import Checks
from perdure.pregel.plan import Branch, Calling, NodeSpec, Plan, Reader, index_triggers, sign

_READ_INPUT = Reader(bare=START)

Readers = Mapping[Any, Reader | None]


def plan_of(graph: Description, name: str) -> Plan:
    """The plan of a graph that was found to hang together."""
    channels = _channels(graph)
    checks = Checks(graph)
    nodes = _nodes(graph, readers_of(checks))
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
        input_keys=frozenset(key for key in graph.schemas[graph.input_schema] if key in graph.channels),
        output_keys=output_of(graph),
        untracked=frozenset(k for k, c in graph.channels.items() if isinstance(c, UntrackedValue)),
        plain=frozenset(key for key, channel in graph.channels.items() if type(channel) is LastValue),
        triggers=frozenset(map(branch_channel, graph.nodes)),
        barriers=frozenset(
            key for key, channel in channels.items() if isinstance(channel, NamedBarrierValue)
        ),
        appended=frozenset(key for key, reducer in reducers.items() if reducer is operator.add),
        reduced=frozenset(reducers),
        initial=tuple(key for key, channel in channels.items() if channel.is_available()),
        defaulted=tuple(
            key
            for key, channel in graph.channels.items()
            if isinstance(channel, BinaryOperatorAggregate) and channel.default is not None
        ),
        signature=sign(nodes, channels),
        accept=accept_of(name, checks),
        validators=checks.validators,
        bare=graph.channels.keys() == {ROOT},
        context=context_of(graph.context_schema),
        json_schema=schema_maker(graph, name),
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


def _nodes(graph: Description, readers: Readers) -> dict[str, NodeSpec]:
    state = graph.state_schema
    start = (lambda given: given, Calling.INPUT, (START,), _READ_INPUT)
    specs = {START: _spec(graph, START, *start, _branches(graph, START, readers, state))}
    for name, node in graph.nodes.items():
        joins = (join_channel(starts, end) for starts, end in sorted(graph.waiting_edges) if end == name)
        schema = state if node.input_schema is None else node.input_schema
        branches = _branches(graph, name, readers, schema)
        triggers = (branch_channel(name), *joins)
        specs[name] = _spec(graph, name, node.action, node.calling, triggers, readers[schema], branches)
    return specs


def _spec(
    graph: Description,
    name: str,
    action: Callable[..., Any],
    calling: Calling,
    triggers: tuple[str, ...],
    reader: Reader | None,
    branches: tuple[Branch, ...],
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
        branches=branches,
        reader=reader,
    )


def _branches(graph: Description, source: str, readers: Readers, schema: Any) -> tuple[Branch, ...]:
    """The conditional edges of a node, whose paths are given what the node is unless they say otherwise."""
    return tuple(
        _branch(branch, readers[schema if branch.input_schema is None else branch.input_schema])
        for branch in graph.branches.get(source, {}).values()
    )


def _branch(branch: StateBranch, reader: Reader | None) -> Branch:
    return Branch(name=branch.name, path=branch.path, ends=branch.ends, reader=reader, injects=branch.injects)
