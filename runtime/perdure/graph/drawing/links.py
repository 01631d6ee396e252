"""Links: edges made ready to be laid out in layers, without loops, cycles and parallels."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from perdure.graph.drawing.elements import Edge


@dataclass(frozen=True, slots=True)
class Link:
    """All edges between two nodes.

    Attributes:
        upper, lower: the nodes' ids.
        down, up: whether an edge leads that way.
        conditional: every one of the edges is.
    """

    upper: str
    lower: str
    down: bool
    up: bool
    conditional: bool


def links_of(nodes: Sequence[str], edges: Collection[Edge]) -> list[Link]:
    """Join the edges between the same two nodes into links; edges that close a cycle are turned round."""
    targets: dict[str, list[str]] = {node: [] for node in nodes}
    for edge in edges:
        if edge.target != edge.source:
            targets[edge.source].append(edge.target)
    back = set(_back_edges(targets))
    pairs: dict[tuple[str, str], list[Edge]] = {}
    for edge in edges:
        if edge.target != edge.source:
            turned = (edge.source, edge.target) in back
            pair = (edge.target, edge.source) if turned else (edge.source, edge.target)
            pairs.setdefault(pair, []).append(edge)
    return [
        Link(
            upper=upper,
            lower=lower,
            down=any(edge.source == upper for edge in between),
            up=any(edge.source == lower for edge in between),
            conditional=all(edge.conditional for edge in between),
        )
        for (upper, lower), between in pairs.items()
    ]


def _back_edges(targets: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """Yield the edges that close a cycle: in a depth-first search, their target is still being visited."""
    open_nodes: set[str] = set()
    closed: set[str] = set()
    for root in targets:
        if root in closed:
            continue
        open_nodes.add(root)
        path = [(root, iter(targets[root]))]
        while path:
            node, rest = path[-1]
            target = next(rest, None)
            if target is None:
                path.pop()
                open_nodes.discard(node)
                closed.add(node)
            elif target in open_nodes:
                yield node, target
            elif target not in closed:
                open_nodes.add(target)
                path.append((target, iter(targets[target])))


def parts_of(nodes: Sequence[str], links: Iterable[Link]) -> list[tuple[list[str], list[Link]]]:
    """Divide a graph into its connected parts. Nodes and links of each part keep their order."""
    part: dict[str, list[str]] = {node: [node] for node in nodes}
    for link in links:
        one, other = part[link.upper], part[link.lower]
        if one is not other:
            one.extend(other)
            part.update(dict.fromkeys(other, one))
    members = {id(each): each for each in part.values()}
    order = {node: at for at, node in enumerate(nodes)}
    return [
        (sorted(each, key=order.__getitem__), [link for link in links if part[link.upper] is each])
        for each in members.values()
    ]
