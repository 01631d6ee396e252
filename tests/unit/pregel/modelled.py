"""The graph of a model's shape, for the engine."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

from perdure.constants import START
from perdure.data import Command, Send
from perdure.graph.state import StateGraph
from tests.unit.pregel.model import FUEL, Shape, entry, name_of, packets


class State(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    total: Annotated[int, operator.add]


def build(shape: Shape, began: Callable[[str], None] = lambda entry: None) -> StateGraph:
    """The graph; `began` hears of every body that starts."""
    builder = StateGraph(State)
    for number in range(shape.size):
        action = _action(shape, number, began)
        builder.add_node(name_of(number), action, defer=number in shape.deferred)
        builder.add_conditional_edges(name_of(number), _path(shape, number))
    for number in shape.entries:
        builder.add_edge(START, name_of(number))
    for start, end in shape.edges:
        builder.add_edge(name_of(start), name_of(end))
    for starts, end in shape.joins:
        builder.add_edge([name_of(start) for start in starts], name_of(end))
    return builder


def _action(shape: Shape, number: int, began: Callable[[str], None]) -> Callable[[Any], Any]:
    async def action(given: Any) -> Command:
        depth = given.get("depth")
        log = len(given["log"]) if depth is None else 0
        own = entry(number, log, depth)
        began(own)
        sends = [Send(name_of(to), {"depth": deep}) for to, deep in packets(shape, number, log, depth)]
        return Command(update={"log": [own], "total": 1}, goto=sends)

    return action


def _path(shape: Shape, number: int) -> Callable[[Any], list[str]]:
    def path(state: State) -> list[str]:
        return [name_of(to) for to in shape.branches[number]] if len(state["log"]) < FUEL else []

    return path
