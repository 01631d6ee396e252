"""A model of supersteps, written from the description alone, and random graphs to hold the engine to it."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, TypedDict

from hypothesis import strategies as st

from perdure.constants import START
from perdure.data import Command, Send
from perdure.graph.state import StateGraph

FUEL = 9
"""Nodes branch and send only while the log is shorter; edges and joins lead forward, so all runs end."""


class State(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    total: Annotated[int, operator.add]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A graph of nodes n0, n1, …, by number.

    Attributes:
        entries: where START leads.
        edges, joins: static edges, from lower to higher numbers.
        branches: where the conditional edge of a node leads while there is fuel.
        sends: where a node sends packets, as often as a number stands there.
    """

    size: int
    entries: frozenset[int]
    edges: frozenset[tuple[int, int]]
    joins: frozenset[tuple[tuple[int, ...], int]]
    branches: tuple[tuple[int, ...], ...]
    sends: tuple[tuple[int, ...], ...]


def _name(number: int) -> str:
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
    arrived: dict[Any, set[int]] = {join: set() for join in shape.joins}
    supersteps = []
    while due or mail:
        ran = [Ran(number, None) for number in sorted(due, key=_name)]
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
    return f"{_name(number)} at {log}" if depth is None else f"{_name(number)} sent {depth}"


# The same graph for the engine


def build(shape: Shape, began: Callable[[str], None] = lambda entry: None) -> StateGraph:
    """The graph; `began` hears of every body that starts."""
    builder = StateGraph(State)
    for number in range(shape.size):
        builder.add_node(_name(number), _action(shape, number, began))
        builder.add_conditional_edges(_name(number), _path(shape, number))
    for number in shape.entries:
        builder.add_edge(START, _name(number))
    for start, end in shape.edges:
        builder.add_edge(_name(start), _name(end))
    for starts, end in shape.joins:
        builder.add_edge([_name(start) for start in starts], _name(end))
    return builder


def _action(shape: Shape, number: int, began: Callable[[str], None]) -> Callable[[Any], Any]:
    async def action(given: Any) -> Command:
        depth = given.get("depth")
        log = len(given["log"]) if depth is None else 0
        own = entry(number, log, depth)
        began(own)
        sends = [Send(_name(to), {"depth": deep}) for to, deep in packets(shape, number, log, depth)]
        return Command(update={"log": [own], "total": 1}, goto=sends)

    return action


def _path(shape: Shape, number: int) -> Callable[[Any], list[str]]:
    def path(state: State) -> list[str]:
        return [_name(to) for to in shape.branches[number]] if len(state["log"]) < FUEL else []

    return path
