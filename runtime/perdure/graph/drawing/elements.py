"""What a drawing is made of: nodes and edges, and the groups that their ids put them in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from perdure.constants import END, NAMESPACE_END, START

Group = tuple[str, ...]
"""The subgraphs around a node, the outermost first; () is the graph itself."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node as drawn.

    Attributes:
        id: its name; inside a subgraph, `subgraph:name`.
        data: what it runs; of `__start__` and `__end__`: the schema of the input and of the output.
        metadata: what its user says of it, and `defer` and `__interrupt` ("before", "after" or
            "before,after") where they apply.
    """

    id: str
    name: str
    data: Any = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_start(self) -> bool:
        return self.name == START

    @property
    def is_end(self) -> bool:
        return self.name == END


class Edge(NamedTuple):
    """An edge as drawn, from the node `source` to the node `target`, both named by their ids.

    Attributes:
        data: its label, if it has one.
        conditional: it is taken on some runs only.
    """

    source: str
    target: str
    data: str | None = None
    conditional: bool = False


def in_order(edges: Iterable[Edge]) -> list[Edge]:
    """The edges without repetitions: by source and target, plain ones first, then by label."""
    return sorted(set(edges), key=lambda edge: (edge.source, edge.target, edge.conditional, edge.data or ""))


def nested_id(group: str, node: str) -> str:
    """The id that a node has when the graph it belongs to is drawn inside another one."""
    return f"{group}{NAMESPACE_END}{node}"


def group_id(group: Group) -> str:
    """A group by the id of the node that it was drawn for."""
    return NAMESPACE_END.join(group)


def group_of(node: str) -> Group:
    """The group in which a node is drawn."""
    return tuple(node.split(NAMESPACE_END)[:-1])


def group_around(edge: Edge) -> Group:
    """The innermost group that holds both ends of an edge."""
    shared = []
    for one, other in zip(group_of(edge.source), group_of(edge.target), strict=False):
        if one != other:
            break
        shared.append(one)
    return tuple(shared)


@dataclass(frozen=True, slots=True)
class Block:
    """A group with what is drawn in it, and the groups inside it."""

    group: Group
    nodes: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    inner: list[Block] = field(default_factory=list)


def blocks(nodes: Iterable[Node], edges: Iterable[Edge]) -> Block:
    """The outermost block, with all nodes and edges in the blocks they belong to."""
    known: dict[Group, Block] = {(): Block(())}

    def block(group: Group) -> Block:
        if group not in known:
            known[group] = Block(group)
            block(group[:-1]).inner.append(known[group])
        return known[group]

    for node in nodes:
        block(group_of(node.id)).nodes.append(node)
    for edge in edges:
        block(group_around(edge)).edges.append(edge)
    return known[()]
