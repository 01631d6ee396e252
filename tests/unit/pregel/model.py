"""A model of supersteps, written from the description alone, and the shapes of the graphs that it knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from hypothesis import strategies as st

FUEL = 9
"""Nodes branch and send only while the log is shorter; edges and joins lead forward, so all runs end."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A graph of nodes n0, n1, …, by number.

    Attributes:
        entries: where START leads.
        edges, joins: static edges, from lower to higher numbers.
        branches: where the conditional edge of a node leads while there is fuel.
        sends: where a node sends packets, as often as a number stands there.
        deferred: nodes that wait until nothing else is left to do.
    """

    size: int
    entries: frozenset[int]
    edges: frozenset[tuple[int, int]]
    joins: frozenset[tuple[tuple[int, ...], int]]
    branches: tuple[tuple[int, ...], ...]
    sends: tuple[tuple[int, ...], ...]
    deferred: frozenset[int] = frozenset()


def name_of(number: int) -> str:
    return f"n{number}"


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """Random graphs of up to twelve nodes, so that names do not sort as numbers do."""
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


def packets(shape: Shape, number: int, log: int, depth: int | None) -> list[tuple[int, int]]:
    """What a node sends: (to whom, how deep it may go on), from the state or from a packet."""
    if depth is None:
        depth = 1 if log < FUEL else -1
    return [(target, depth - 1) for target in shape.sends[number]] if depth >= 0 else []


# The model


class Ran(NamedTuple):
    """A body that ran: of which node, on a packet or on the state."""

    number: int
    depth: int | None


def run_model(shape: Shape) -> tuple[list[str], list[list[Ran]]]:
    """The final log, and what ran in each superstep, in the order in which writes merge."""
    log: list[str] = []
    due, mail = set(shape.entries), list[tuple[int, int]]()
    waiting = set[int]()
    arrived: dict[Any, set[int]] = {join: set() for join in shape.joins}
    supersteps = []
    while due or mail or waiting:
        due, waiting = due - shape.deferred, waiting | due & shape.deferred
        if not due and not mail:
            due, waiting = waiting, set()
        ran = [Ran(number, None) for number in sorted(due, key=name_of)]
        ran += [Ran(number, depth) for number, depth in mail]
        supersteps.append(ran)
        for starts, end in shape.joins:
            if end in due and arrived[starts, end] == set(starts):
                arrived[starts, end] = set()
        due, mail, written = set(), [], list[str]()
        for number, depth in ran:
            written.append(entry(number, len(log), depth))
            due.update(end for start, end in shape.edges if start == number)
            if len(log) + 1 < FUEL:
                due.update(shape.branches[number])
            mail.extend(packets(shape, number, len(log), depth))
            for join in shape.joins:
                if number in join[0]:
                    arrived[join].add(number)
        due.update(join[1] for join in shape.joins if arrived[join] == set(join[0]))
        log.extend(written)
    return log, supersteps


def entry(number: int, log: int, depth: int | None) -> str:
    return f"{name_of(number)} at {log}" if depth is None else f"{name_of(number)} sent {depth}"
