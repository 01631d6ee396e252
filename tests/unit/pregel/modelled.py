"""The engine's graph of a shape."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import anyio.lowlevel

from perdure.channels import Topic
from perdure.constants import START
from perdure.data import Command, Send
from perdure.graph.state import StateGraph
from tests.unit.pregel.shapes import FUEL, Shape, entry, name_of, packets, update_of


class State(TypedDict, total=False):
    """Keys of many kinds: `news` holds the last superstep's writes, `heard` all; `last` has one writer."""

    log: Annotated[list[str], operator.add]
    total: Annotated[int, operator.add]
    facts: Annotated[dict[str, str], operator.or_]
    news: Annotated[list[str], Topic(str)]
    heard: Annotated[list[str], Topic(str, accumulate=True)]
    last: str
    fuel: int


def ignore(entry: str) -> None:
    """Ignore a body."""


def build(
    shape: Shape,
    began: Callable[[str], None] = ignore,
    ended: Callable[[str], None] = ignore,
    *,
    turns: int = 1,
) -> StateGraph:
    """Build the graph of a shape.

    Args:
        began, ended: called by every body when it begins, and before it ends.
        turns: the number of speeds of the bodies: each yields to others 0 to `turns` - 1 times.
    """
    builder = StateGraph(State)
    for number in range(shape.size):
        action = _action(shape, number, began, ended, number % turns)
        builder.add_node(name_of(number), action, defer=number in shape.deferred)
        builder.add_conditional_edges(name_of(number), _path(shape, number))
    for number in shape.entries:
        builder.add_edge(START, name_of(number))
    for start, end in shape.edges:
        builder.add_edge(name_of(start), name_of(end))
    for starts, end in shape.joins:
        builder.add_edge([name_of(start) for start in starts], name_of(end))
    return builder


def _action(
    shape: Shape, number: int, began: Callable[[str], None], ended: Callable[[str], None], turns: int
) -> Callable[[Any], Any]:
    async def action(given: Any) -> Command:
        depth = given.get("depth")
        log, fuel = (len(given["log"]), given.get("fuel", FUEL)) if depth is None else (0, 0)
        own = entry(number, log, depth)
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
        began(own)
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
        sends = [Send(name_of(to), {"depth": deep}) for to, deep in packets(shape, number, log < fuel, depth)]
        ended(own)
        return Command(update=update_of(number, own, depth), goto=sends)

    return action


def _path(shape: Shape, number: int) -> Callable[[Any], list[str]]:
    def path(state: State) -> list[str]:
        fuelled = len(state["log"]) < state.get("fuel", FUEL)
        return [name_of(to) for to in shape.branches[number]] if fuelled else []

    return path
