"""The making of a Plan from a description: its channels, its nodes and their edges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.channels.base import BaseChannel
from perdure.channels.ephemeral_value import EphemeralValue
from perdure.channels.last_value_after_finish import LastValueAfterFinish
from perdure.channels.named_barrier_value import NamedBarrierValue
from perdure.channels.named_barrier_value_after_finish import NamedBarrierValueAfterFinish
from perdure.channels.topic import Topic
from perdure.constants import END, ROOT, START, TASKS, branch_channel, join_channel
from perdure.data import Send
from perdure.graph.compilation.inputs import accept_of
from perdure.graph.compilation.json_schema import schema_maker
from perdure.graph.compilation.policies import handlers_of, node_policies
from perdure.graph.compilation.readers import context_of, output_of, readers_of
from perdure.graph.compilation.validation import Checks
from perdure.graph.description import Description, StateBranch, StateNode
from perdure.pregel.plan.plan import Branch, Calling, ChildGraph, InputReader, NodeSpec, Plan

_READ_INPUT = InputReader(bare=START)
_START = StateNode(action=lambda given: given, calling=Calling.INPUT)  # is never called

Readers = Mapping[object, InputReader | None]


def plan_of(
    graph: Description, name: str, *, strict: bool = False, renamed: Mapping[str, str] | None = None
) -> Plan:
    """Make the plan of a graph that was checked."""
    checks = Checks(graph)
    return Plan(
        name=name,
        nodes=_nodes(graph, readers_of(checks)),
        channels=_channels(graph),
        state_keys=frozenset(graph.channels),
        input_keys=frozenset(key for key in graph.schemas[graph.input_schema] if key in graph.channels),
        output_keys=output_of(graph),
        accept=accept_of(name, checks),
        validators=checks.validators,
        bare=graph.channels.keys() == {ROOT},
        context=context_of(graph.context_schema),
        json_schema=schema_maker(graph, name),
        strict=strict,
        renamed=dict(renamed or {}),
    )


def _channels(graph: Description) -> dict[str, BaseChannel]:
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


def _nodes(graph: Description, readers: Readers) -> dict[str, NodeSpec]:
    handlers = handlers_of(graph)
    leaving, joining = _edges_by_source(graph), _joins_by_end(graph)

    def spec(name: str, node: StateNode, triggers: tuple[str, ...], reader: InputReader | None) -> NodeSpec:
        schema = graph.state_schema if node.input_schema is None else node.input_schema
        child = None if node.subgraph is None else ChildGraph.sharing(node.subgraph, graph.channels)
        return NodeSpec(
            name=name,
            action=node.action if child is None else child.run,
            calling=node.calling,
            triggers=triggers,
            edges=tuple(leaving.get(name, ())),
            branches=_branches(graph, name, readers, schema),
            reader=reader,
            injects=node.injects,
            policies=None if name == START else node_policies(name, node, graph.defaults, handlers),
            metadata=node.metadata,
            child=child,
        )

    specs = {START: spec(START, _START, (START,), _READ_INPUT)}
    for name, node in graph.nodes.items():
        triggers = (branch_channel(name), *joining.get(name, ()))
        specs[name] = spec(name, node, triggers, _reader(graph, node, readers))
    return specs


def _edges_by_source(graph: Description) -> dict[str, list[tuple[str, str | None]]]:
    """Return the writes by which each node's static edges fire: plain edges by their ends, then joins."""
    leaving: dict[str, list[tuple[str, str | None]]] = {}
    for start, end in sorted(graph.edges):
        if end != END:
            leaving.setdefault(start, []).append((branch_channel(end), None))
    for starts, end in sorted(graph.waiting_edges):
        for start in dict.fromkeys(starts) if end != END else ():
            leaving.setdefault(start, []).append((join_channel(starts, end), start))
    return leaving


def _joins_by_end(graph: Description) -> dict[str, list[str]]:
    joining: dict[str, list[str]] = {}
    for starts, end in sorted(graph.waiting_edges):
        joining.setdefault(end, []).append(join_channel(starts, end))
    return joining


def _reader(graph: Description, node: StateNode, readers: Readers) -> InputReader | None:
    """Choose the reader of a node's input. A compiled graph reads the keys that it shares with the state."""
    if node.input_schema is not None:
        return readers[node.input_schema]
    if node.subgraph is not None and ROOT not in graph.channels:
        return InputReader(keys=tuple(key for key in graph.channels if key in node.subgraph.plan.input_keys))
    return readers[graph.state_schema]


def _branches(graph: Description, source: str, readers: Readers, schema: object) -> tuple[Branch, ...]:
    """Make the conditional edges of a node, whose paths read as the node does, or by their own schema."""
    return tuple(
        _branch(branch, readers[schema if branch.input_schema is None else branch.input_schema])
        for branch in graph.branches.get(source, {}).values()
    )


def _branch(branch: StateBranch, reader: InputReader | None) -> Branch:
    """Make a conditional edge.

    A path without a schema of its own also sees keys that its node returned and the state does not have.
    """
    return Branch(
        name=branch.name,
        path=branch.path,
        ends=branch.ends,
        reader=reader,
        sees_result=branch.input_schema is None
        and (reader is None or (reader.build is None and reader.bare is None)),
        injects=branch.injects,
    )
