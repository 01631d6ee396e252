"""Random graphs and the actions of their nodes, for the engine and for its model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

FUEL = 9
"""Nodes branch and send while the log is shorter, if no input says otherwise; edges and joins lead forward,
so all runs end."""

ENTRY = -1
"""The number of START."""

Packet = tuple[int, int]
"""A packet: its node, and the depth to which that may send packets in turn."""

Join = tuple[tuple[int, ...], int]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A graph of nodes n0, n1, …, by number.

    Attributes:
        entries: the nodes to which START leads.
        edges, joins: static edges, from lower to higher numbers.
        branches: by node, the nodes to which its conditional edge leads while there is fuel.
        sends: by node, the nodes to which it sends packets, one for each time that a node is listed.
        deferred: nodes that wait until nothing else is left to do.
    """

    size: int
    entries: frozenset[int]
    edges: frozenset[tuple[int, int]]
    joins: frozenset[Join]
    branches: tuple[tuple[int, ...], ...]
    sends: tuple[tuple[int, ...], ...]
    deferred: frozenset[int] = frozenset()


def name_of(number: int) -> str:
    return "__start__" if number == ENTRY else f"n{number}"


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """Draw a graph of up to twelve nodes, enough for names not to sort as numbers do."""
    size = draw(st.integers(2, 12))
    node = st.integers(0, size - 1)
    forward = st.tuples(node, node).filter(lambda pair: pair[0] < pair[1])
    join = st.tuples(st.sets(node, min_size=1, max_size=3).map(sorted).map(tuple), node)
    few = st.lists(node, max_size=2).map(tuple)
    every = st.tuples(*[few] * size)
    return Shape(
        size=size,
        entries=draw(st.frozensets(node, min_size=1, max_size=3)),
        edges=draw(st.frozensets(forward, max_size=8)),
        joins=draw(st.frozensets(join.filter(lambda j: max(j[0]) < j[1]), max_size=3)),
        branches=draw(every),
        sends=draw(every),
        deferred=draw(st.just(frozenset[int]()) | st.frozensets(node, max_size=4)),
    )


def packets(shape: Shape, number: int, fuelled: bool, depth: int | None) -> list[Packet]:
    """Return the Sends of a node, from the state or from a packet."""
    if depth is None:
        depth = 1 if fuelled else -1
    return [(target, depth - 1) for target in shape.sends[number]] if depth >= 0 else []


def entry(number: int, log: int, depth: int | None) -> str:
    return f"{name_of(number)} at {log}" if depth is None else f"{name_of(number)} sent {depth}"


def update_of(number: int, own: str, depth: int | None) -> dict[str, Any]:
    """Return a node's update. It has keys of many kinds, so that the order of writes shows."""
    facts = {"latest": own, f"of {number % 3}": own}
    update = {"log": [own], "total": 1, "facts": facts, "news": own, "heard": own}
    return {**update, "last": own} if number == 0 and depth is None else update
