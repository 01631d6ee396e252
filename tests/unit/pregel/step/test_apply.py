"""Writes are merged in one defined order, and nodes get copies of the state."""

from __future__ import annotations

import copy
import operator
from collections import deque
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import anyio
import anyio.lowlevel
import pytest

from perdure.constants import END, PULL, PUSH, START
from perdure.data import Command, Overwrite, Send
from perdure.errors import InvalidUpdateError
from perdure.graph.state import StateGraph
from perdure.pregel.plan.plan import Plan
from perdure.pregel.step.apply import apply
from perdure.pregel.step.namespace import ROOT_NAMESPACE
from perdure.pregel.step.outcome import Finished
from perdure.pregel.step.state import ThreadState
from perdure.pregel.step.task import Superstep, Task, Writes
from tests.unit.pregel.graphs import Gate, Log, chain, fan, logs, returns, thread
from tests.unit.pregel.savers import WatchedSaver

STEP = Superstep("c0", ROOT_NAMESPACE, 0, 25)


def finished(plan: Plan, name: str, writes: Writes, path: tuple[str, str | int] | None = None) -> Finished:
    task = Task(plan.nodes[name], path or (PULL, name), plan.nodes[name].triggers, None, STEP)
    return Finished(task, writes, len(writes))


def plan_of(*names: str) -> Plan:
    return fan(names).compile().plan


# The pure function


def test_nodes_come_by_name_then_sends_by_number_whatever_order_they_are_given_in() -> None:
    plan = plan_of("n10", "n9", "n1")
    tasks = [
        finished(plan, "n1", [("log", ["s10"])], (PUSH, 10)),
        finished(plan, "n9", [("log", ["n9"])]),
        finished(plan, "n9", [("log", ["s9"])], (PUSH, 9)),
        finished(plan, "n10", [("log", ["n10"])]),
        finished(plan, "n1", [("log", ["n1"]), ("log", ["n1 again"])]),
    ]
    for given in (tasks, tasks[::-1]):
        state = ThreadState(plan)
        apply(state, given, "c1")

        assert state.read()["log"] == ["n1", "n1 again", "n10", "n9", "s9", "s10"]


def test_all_that_changed_has_one_new_version_that_names_the_checkpoint() -> None:
    plan = plan_of("a", "b")
    state = ThreadState(plan)
    changed, updated = apply(state, [finished(plan, "a", [("x", 1), ("branch:to:b", None)])], "c1")

    assert changed == {"x", "branch:to:b"}
    assert updated == ["x", "branch:to:b"]
    assert state.versions == {"x": "0000000001.c1", "branch:to:b": "0000000001.c1"}
    assert "log" not in state.versions


def test_what_is_not_stored_changes_in_the_same_way_and_has_no_versions() -> None:
    plan = plan_of("a", "b")
    stored, passing = ThreadState(plan), ThreadState(plan)
    for number in (1, 2):
        tasks = [finished(plan, "a", [("x", number), ("log", ["a"]), ("branch:to:b", None)])]
        assert apply(passing, tasks, f"c{number}", stored=False) == apply(stored, tasks, f"c{number}")

    assert (passing.read(), passing.raised) == (stored.read(), stored.raised)
    assert (passing.versions, passing.seen, passing.counter) == ({}, {}, 0)


def test_what_a_superstep_does_not_write_again_is_emptied_and_drives_nothing() -> None:
    plan = plan_of("a", "b")
    state = ThreadState(plan)
    apply(state, [finished(plan, "a", [("branch:to:b", None)])], "c1")
    changed, updated = apply(state, [finished(plan, "b", [("x", 1)])], "c2")

    assert changed == {"x", "branch:to:b"}
    assert updated == ["x"]
    assert not state.channels["branch:to:b"].is_available()


def test_tasks_have_seen_the_version_that_triggered_them_and_not_the_one_they_made() -> None:
    plan = plan_of("a")
    state = ThreadState(plan)
    apply(state, [finished(plan, "a", [("branch:to:a", None)])], "c1")
    apply(state, [finished(plan, "a", [("branch:to:a", None)])], "c2")

    assert state.seen["a"]["branch:to:a"] == "0000000001.c1"
    assert state.versions["branch:to:a"] == "0000000002.c2"


def test_a_refused_write_leaves_values_versions_and_barriers_as_they_were() -> None:
    builder = fan(["a", "b"]).add_node("c", logs("c")).add_node("d", logs("d")).add_edge(["a", "b"], "c")
    plan = builder.compile().plan
    state = ThreadState(plan)
    apply(state, [finished(plan, n, [("join:a+b:c", n), ("log", [n])]) for n in "ab"], "c1")
    before = (state.read(), dict(state.versions), state.channels["join:a+b:c"].is_available())
    clash = [finished(plan, n, [("log", [n]), ("x", 1)]) for n in "cd"]

    with pytest.raises(InvalidUpdateError, match="'x'"):
        apply(state, clash, "c2")

    assert (state.read(), state.versions, state.channels["join:a+b:c"].is_available()) == before


def test_two_threads_of_one_plan_share_nothing() -> None:
    plan = plan_of("a")
    one, other = ThreadState(plan), ThreadState(plan)
    apply(one, [finished(plan, "a", [("log", ["a"]), ("x", 1)])], "c1")

    assert other.read() == {"log": []}
    assert ThreadState(plan).read() == {"log": []}


# What graphs see of it


async def test_reducers_see_writes_by_node_name_then_sends_not_by_who_ended_first() -> None:
    names = [f"n{i}" for i in range(11)]
    gates = {name: Gate({"log": [name]}) for name in names}
    builder = StateGraph(Log)
    for name in names:
        builder.add_node(name, gates[name]).add_edge("first", name)
    sends = [Send("sent", i) for i in range(11)]

    async def sent(number: Any) -> Any:
        return {"log": [f"s{number}"]}

    builder.add_node("first", returns(Command(goto=sends))).add_node("sent", sent).add_edge(START, "first")
    result: dict[str, Any] = {}

    async def run() -> None:
        result.update(await builder.compile().ainvoke({}))

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        for name in reversed(names):
            await gates[name].entered.wait()
            gates[name].open.set()
            await gates[name].cleaned.wait()

    assert result["log"] == [*sorted(names), *(f"s{i}" for i in range(11))]


async def test_two_nodes_that_write_one_plain_key_are_refused_by_key_and_named() -> None:
    with pytest.raises(InvalidUpdateError, match="'x'") as refused:
        await fan(["a", "b"], {"a": returns({"x": 1}), "b": returns({"x": 2})}).compile().ainvoke({})

    assert refused.value.__notes__ == ["While merging what 'a', 'b' wrote to state key 'x'"]


async def test_an_overwrite_replaces_what_a_reducer_made() -> None:
    graph = chain(["a", "b"], {"b": returns({"log": Overwrite(["new"])})}).compile()

    assert (await graph.ainvoke({"log": ["in"]}))["log"] == ["new"]


async def test_what_a_node_does_to_its_input_changes_nothing() -> None:
    seen: list[Any] = []

    async def spoils(state: Log) -> None:
        state["log"].append("spoilt")
        state["y"].append("spoilt")
        state["x"] = 100

    async def looks(state: Log) -> None:
        seen.append(state)

    builder = chain(["a", "b"], {"a": spoils, "b": looks})
    builder.add_node("sibling", looks).add_edge(START, "sibling")
    given: dict[str, Any] = {"log": ["in"], "y": ["in"], "x": 1}

    assert await builder.compile().ainvoke(given) == {"log": ["in"], "y": ["in"], "x": 1}
    assert given == {"log": ["in"], "y": ["in"], "x": 1}
    assert seen == [given, given]


IN_PLACE: list[tuple[Any, Callable[[Any], None]]] = [
    ([1], lambda value: value.append(2)),
    ({"k": 1}, lambda value: value.update(k=2)),
    ({1}, lambda value: value.add(2)),
    (deque([1]), lambda value: value.append(2)),
    (bytearray(b"1"), lambda value: value.extend(b"2")),
]


@pytest.mark.parametrize(("value", "change"), IN_PLACE, ids=[type(value).__name__ for value, _ in IN_PLACE])
async def test_a_container_of_any_kind_is_not_changed_by_nodes_paths_or_readers_of_the_result(
    value: Any, change: Callable[[Any], None]
) -> None:
    seen: list[Any] = []

    async def spoils(state: Log) -> None:
        change(state["y"])

    def path(state: Log) -> str:
        seen.append(copy.copy(state["y"]))
        change(state["y"])
        return "b"

    builder = chain(["a"], {"a": spoils}).add_node("b", spoils).add_node("c", spoils).add_edge(START, "c")
    graph = builder.add_conditional_edges("a", path).compile()
    before = copy.copy(value)
    result = await graph.ainvoke({"y": value})

    assert result["y"] == before
    assert seen == [before]
    change(result["y"])
    assert value == before


async def test_what_a_sent_node_does_to_its_argument_changes_no_other_send() -> None:
    shared: list[int] = []
    lengths: list[int] = []

    async def spoils(given: list[int]) -> None:
        lengths.append(len(given))
        given.append(1)

    builder = chain(["a"], {"a": returns([Send("b", shared), Send("b", shared)])}).add_node("b", spoils)
    await builder.compile().ainvoke({})

    assert lengths == [0, 0]
    assert shared == []


async def test_what_the_caller_does_to_a_result_changes_no_later_run_and_no_node() -> None:
    kept: list[Any] = ["kept"]
    graph = chain(["a"], {"a": returns({"y": kept})}).compile()
    (await graph.ainvoke({}))["y"].append("spoilt")

    assert kept == ["kept"]
    assert await graph.ainvoke({}) == {"log": [], "y": ["kept"]}


async def test_a_reducer_that_changes_its_left_side_changes_only_a_copy() -> None:
    def extend(left: list[str], right: list[str]) -> list[str]:
        left.extend(right)
        return left

    class State(TypedDict, total=False):
        items: Annotated[list[str], extend]

    globals()["extend"] = extend
    builder = (
        StateGraph(State).add_node("a", returns({"items": ["a"]})).add_node("b", returns({"items": ["b"]}))
    )
    given = {"items": ["in"]}
    graph = builder.add_edge(START, "a").add_edge("a", "b").compile()

    assert await graph.ainvoke(given) == {"items": ["in", "a", "b"]}
    assert given == {"items": ["in"]}


def concatenate(left: str, right: str) -> str:
    return left + right


def broken(left: list[int], right: list[int]) -> list[int]:
    raise ZeroDivisionError("in the reducer")


class Reduced(TypedDict, total=False):
    total: Annotated[int, operator.add]
    text: Annotated[str, concatenate]
    bad: Annotated[list[int], broken]


async def test_reduced_keys_start_from_the_empty_value_of_their_type() -> None:
    builder = StateGraph(Reduced).add_node("a", returns({"total": 5})).add_edge(START, "a")

    assert await builder.compile().ainvoke({"text": "x"}) == {"total": 5, "text": "x", "bad": []}


@pytest.mark.parametrize("path", [None, lambda state: END])
async def test_a_reducer_that_raises_fails_the_run_with_its_own_error(
    path: Callable[[Any], Any] | None,
) -> None:
    builder = StateGraph(Reduced).add_node("a", returns({"bad": [1]})).add_edge(START, "a")
    if path is not None:
        builder.add_conditional_edges("a", path)
    with pytest.raises(ZeroDivisionError, match="in the reducer"):
        await builder.compile().ainvoke({})


@pytest.mark.parametrize("given", [{"bad": [1]}, Command(update={"bad": [1]}, goto="a")])
async def test_a_reducer_that_raises_on_the_input_is_told_of_the_input(given: Any) -> None:
    builder = StateGraph(Reduced).add_node("a", returns(None)).add_edge(START, "a")
    with pytest.raises(ZeroDivisionError) as raised:
        await builder.compile().ainvoke(given)

    assert "While merging what the input wrote to state key 'bad'" in raised.value.__notes__


@pytest.mark.parametrize("failing", ["n0", "n5", "n10"])
async def test_eleven_nodes_are_merged_in_the_order_of_their_names_after_a_resume_too(failing: str) -> None:
    names = [f"n{number}" for number in range(11)]
    broken = [ValueError("boom")]

    async def fails_late_once(state: Any) -> Any:
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        if broken:
            raise broken.pop()
        return {"log": [failing]}

    graph = fan(names, {failing: fails_late_once}).compile(checkpointer=WatchedSaver())
    with pytest.raises(ValueError, match="boom"):
        await graph.ainvoke({}, thread())

    assert (await graph.ainvoke(None, thread()))["log"] == sorted(names)
