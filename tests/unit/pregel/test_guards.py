"""The growth of costs, counted in Python calls, which are equal on every machine.

Each test compares a small case with a large one. Absolute counts are measured by `make bench-against`.
"""

from __future__ import annotations

import asyncio
import cProfile
import pstats
from collections.abc import Coroutine
from typing import Any, TypedDict

import pytest

from perdure.constants import END, START
from perdure.data import Command, Send
from perdure.graph.state import StateGraph
from perdure.pregel.events.facts import RunEnded, SuperstepApplied, SuperstepStored, TaskEnded, TaskStarted
from perdure.pregel.graph import Pregel
from tests.unit.pregel.graphs import Log, chain, logs, returns, thread
from tests.unit.pregel.savers import WatchedSaver

WITHIN = 1.15


@pytest.fixture(autouse=True)
def loop_guard() -> None:
    """Replace the guard of the loop, whose calls would be counted."""


class Counting(TypedDict, total=False):
    x: int


def calls(coroutine: Coroutine[Any, Any, Any]) -> int:
    """Count the calls of Python and builtin functions that a coroutine makes."""
    profile = cProfile.Profile()
    loop = asyncio.new_event_loop()
    try:
        profile.enable()
        loop.run_until_complete(coroutine)
        profile.disable()
    finally:
        loop.close()
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


async def add(state: Counting) -> Counting:
    return {"x": state["x"] + 1}


def looping() -> Pregel:
    """Build one node that runs until x, which counts up, is 0."""
    builder = StateGraph(Counting).add_node("a", add).add_edge(START, "a")
    return builder.add_conditional_edges("a", lambda state: END if state["x"] >= 0 else "a").compile()


def chained(length: int) -> Pregel:
    names = [f"n{i}" for i in range(length)]
    builder = StateGraph(Counting)
    for before, name in zip((START, *names), names, strict=False):
        builder.add_node(name, add).add_edge(before, name)
    return builder.compile()


def wide(keys: int) -> Pregel:
    """Build the looping node over a state with that many other keys."""
    fields: dict[str, Any] = {"x": int, **{f"k{i}": int for i in range(keys)}}
    schema = TypedDict("Wide", fields)  # type: ignore[misc]
    builder = StateGraph(schema).add_node("a", add).add_edge(START, "a")
    return builder.add_conditional_edges("a", lambda state: END if state["x"] >= 0 else "a").compile()


def per_step(graph: Pregel, given: dict[str, Any] | None = None, few: int = 20, many: int = 120) -> float:
    """Return the calls per superstep of a looping graph, without the fixed costs of a run."""
    more, less = (calls(graph.ainvoke({**(given or {}), "x": -steps})) for steps in (many, few))
    return (more - less) / (many - few)


def test_a_key_of_the_input_costs_the_same_among_10_and_among_1000() -> None:
    def run(keys: int) -> int:
        return calls(wide(keys).ainvoke({"x": 0, **{f"k{i}": i for i in range(keys)}}))

    fixed = 2 * run(10) - run(20)
    assert (run(1000) - fixed) / 1000 <= (run(10) - fixed) / 10 * WITHIN


def test_a_step_of_a_loop_costs_the_same_among_10_and_among_1000() -> None:
    assert per_step(looping(), few=20, many=1000) <= per_step(looping(), few=10, many=20) * WITHIN


@pytest.mark.parametrize("durability", ["async", "exit"])
def test_a_superstep_of_one_task_with_a_saver_takes_a_bounded_number_of_calls(durability: Any) -> None:
    def run(length: int) -> int:
        graph = chained(length)
        stored = Pregel.from_plan(graph.plan, checkpointer=WatchedSaver())
        return calls(stored.ainvoke({"x": 0}, thread(), durability=durability))

    one, other = ((run(2 * length) - run(length)) / length for length in (20, 80))
    assert other <= one * WITHIN


def test_a_step_of_a_chain_costs_the_same_in_a_chain_of_10_and_of_1000() -> None:
    def run(length: int) -> int:
        return calls(chained(length).ainvoke({"x": 0}))

    fixed = 2 * run(10) - run(20)
    assert (run(1000) - fixed) / 1000 <= (run(10) - fixed) / 10 * WITHIN


def test_a_step_costs_the_same_over_10_and_1000_keys() -> None:
    few, many = ({f"k{i}": i for i in range(keys)} for keys in (10, 1000))

    assert per_step(wide(1000), many) <= per_step(wide(10), few) * WITHIN


@pytest.mark.parametrize("limit", [None, 8])
def test_a_send_costs_the_same_among_10_and_among_1000(limit: int | None) -> None:
    async def sent(number: int) -> None: ...

    def run(sends: int) -> int:
        targets = [Send("b", n) for n in range(sends)]
        builder = chain(["a"], {"a": returns(Command(goto=targets))}).add_node("b", sent)
        return calls(builder.compile().ainvoke({}, {"max_concurrency": limit}))

    fixed = 2 * run(10) - run(20)
    assert (run(1000) - fixed) / 1000 <= (run(10) - fixed) / 10 * WITHIN


def test_a_stored_send_costs_the_same_among_10_and_among_1000() -> None:
    async def sent(number: int) -> Any:
        return {"log": [str(number)]}

    def run(sends: int) -> int:
        targets = [Send("b", n) for n in range(sends)]
        builder = chain(["a"], {"a": returns(Command(goto=targets))}).add_node("b", sent)
        return calls(builder.compile(checkpointer=WatchedSaver()).ainvoke({}, thread()))

    fixed = 2 * run(10) - run(20)
    assert (run(1000) - fixed) / 1000 <= (run(10) - fixed) / 10 * WITHIN


def test_events_that_nobody_reads_are_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def built(*_: Any) -> None:
        raise AssertionError("an event was built")

    for kind in (TaskStarted, TaskEnded, SuperstepApplied, SuperstepStored, RunEnded):
        monkeypatch.setattr(f"perdure.pregel.run.loop.{kind.__name__}", built)
    graph = StateGraph(Log).add_node("a", logs("a")).add_edge(START, "a").compile()

    assert asyncio.run(graph.ainvoke({})) == {"log": ["a"]}
