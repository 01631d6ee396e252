"""The elements of a drawing: nodes, edges, and the groups in which their ids place them."""

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
        data: its action; for `__start__` and `__end__`, the schema of the input and of the output.
        metadata: its user's metadata, and `defer` and `__interrupt` ("before", "after" or "before,after")
            where they apply.
    """

    id: str
    name: str
    data: Any = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_start(self) -> bool:
        """True for the node at which every run begins."""
        return self.name == START

    @property
    def is_end(self) -> bool:
        """True for the node at which runs end."""
        return self.name == END


class Edge(NamedTuple):
    """An edge as drawn, from the node `source` to the node `target`, both named by their ids.

    Attributes:
        data: its label, if it has one.
        conditional: whether only some runs take it.
    """

    source: str
    target: str
    data: str | None = None
    conditional: bool = False


def in_order(edges: Iterable[Edge]) -> list[Edge]:
    """Sort edges by source and target, plain ones first, then by label; drop repetitions."""
    return sorted(set(edges), key=lambda edge: (edge.source, edge.target, edge.conditional, edge.data or ""))


def nested_id(group: str, node: str) -> str:
    """Return the id of a node whose graph is drawn inside another graph."""
    return f"{group}{NAMESPACE_END}{node}"


def group_id(group: Group) -> str:
    """Return the id of the node in whose place a group is drawn."""
    return NAMESPACE_END.join(group)


def group_of(node: str) -> Group:
    """Return the group in which a node is drawn."""
    return tuple(node.split(NAMESPACE_END)[:-1])


def group_around(edge: Edge) -> Group:
    """Return the innermost group that contains both ends of an edge."""
    shared = []
    for one, other in zip(group_of(edge.source), group_of(edge.target), strict=False):
        if one != other:
            break
        shared.append(one)
    return tuple(shared)


@dataclass(frozen=True, slots=True)
class Block:
    """A group with its nodes and edges, and the groups inside it."""

    group: Group
    nodes: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    inner: list[Block] = field(default_factory=list)


def blocks(nodes: Iterable[Node], edges: Iterable[Edge]) -> Block:
    """Put nodes and edges into the blocks that they belong to, and return the outermost block."""
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
