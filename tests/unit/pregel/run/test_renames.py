"""Stored threads continue after their nodes were renamed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, TypedDict

import anyio.lowlevel
import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.constants import END, START
from perdure.data import Command, Durability, Send
from perdure.errors import MissingNodeError
from perdure.graph.state import StateGraph
from perdure.pregel.graph import Pregel
from perdure.pregel.plan.plan import Policies
from perdure.service.recovery import recover
from perdure.testing.clock import FakeClock
from tests.unit.pregel.graphs import (
    Action,
    Gate,
    Log,
    Runs,
    chain,
    fails,
    fan,
    logs,
    returns,
    thread,
    with_policies,
)
from tests.unit.pregel.model import run_model
from tests.unit.pregel.modelled import build
from tests.unit.pregel.savers import WatchedSaver
from tests.unit.pregel.shapes import Shape, shapes

DURABILITIES: list[Durability] = ["sync", "async", "exit"]
MODES = pytest.mark.parametrize("durability", DURABILITIES)
BOOM = ValueError("boom")


async def late(state: Any) -> Any:
    """Fail after the siblings have ended."""
    for _ in range(8):
        await anyio.lowlevel.checkpoint()
    raise BOOM


async def broken(builder: StateGraph, saver: WatchedSaver, durability: Durability = "async") -> None:
    """Run a thread until a node of it fails."""
    with pytest.raises(ValueError, match="boom"):
        await builder.compile(checkpointer=saver).ainvoke({}, thread(), durability=durability)


def renamed(builder: StateGraph, saver: WatchedSaver, **names: str) -> Pregel:
    return builder.compile(checkpointer=saver, renamed=names)


# How a thread waits


def by_an_edge(name: str, action: Action) -> StateGraph:
    return chain(["a", name, "z"], {name: action})


def by_a_goto(name: str, action: Action) -> StateGraph:
    builder = chain(["a"], {"a": returns(Command(update={"log": ["a"]}, goto=name))})
    return builder.add_node(name, action).add_node("z", logs("z")).add_edge(name, "z")


def by_sends(name: str, action: Action) -> StateGraph:
    sends = [Send(name, {"n": 1}), Send("y", {"n": 2}), Send(name, {"n": 3})]
    builder = chain(["a"], {"a": returns([{"log": ["a"]}, *sends])})
    return builder.add_node(name, action).add_node("y", logs("y"))


def by_a_join(name: str, action: Action) -> StateGraph:
    return fan(["a", "b"]).add_node(name, action).add_edge(["a", "b"], name)


WAITS: dict[str, tuple[Callable[[str, Action], StateGraph], list[str]]] = {
    "an edge": (by_an_edge, ["a", "went on", "z"]),
    "a goto": (by_a_goto, ["a", "went on", "z"]),
    "Sends": (by_sends, ["a", "went on", "y", "went on"]),
    "a join": (by_a_join, ["a", "b", "went on"]),
}
WAYS = pytest.mark.parametrize(("build", "log"), WAITS.values(), ids=WAITS)


@MODES
@WAYS
async def test_a_thread_that_failed_under_the_old_name_goes_on_under_the_new_one(
    build: Callable[[str, Action], StateGraph], log: list[str], durability: Durability
) -> None:
    saver = WatchedSaver()
    await broken(build("old", fails(BOOM)), saver, durability)
    graph = renamed(build("new", logs("went on")), saver, old="new")

    before = await graph.aget_state(thread())
    assert "new" in before.next
    assert "old" not in before.next
    assert "ValueError('boom')" in [task.error for task in before.tasks if task.name == "new"]
    assert (await graph.ainvoke(None, thread(), durability=durability))["log"] == log
    assert (await graph.aget_state(thread())).next == ()


@WAYS
async def test_without_the_old_name_the_error_says_what_is_missing_and_how_to_name_it(
    build: Callable[[str, Action], StateGraph], log: list[str]
) -> None:
    saver = WatchedSaver()
    await broken(build("old", fails(BOOM)), saver)

    with pytest.raises(MissingNodeError, match=r"'old', which graph .*: compile\(renamed=\{'<old name>'"):
        await build("new", logs("went on")).compile(checkpointer=saver).ainvoke(None, thread())


async def test_a_sibling_that_finished_and_goes_on_to_a_renamed_node_is_not_run_again() -> None:
    saver, runs = WatchedSaver(), Runs()

    def graph(to: str, action: Action) -> StateGraph:
        builder = fan(["a", "late"], {"a": runs.counted("a"), "late": action})
        return builder.add_node(to, logs("went on")).add_edge("a", to)

    await broken(graph("old", late), saver)
    with pytest.raises(MissingNodeError, match=r"goes on to 'branch:to:old'.*compile\(renamed="):
        await graph("new", logs("late")).compile(checkpointer=saver).ainvoke(None, thread())
    after = await renamed(graph("new", logs("late")), saver, old="new").ainvoke(None, thread())

    assert after["log"] == ["a", "late", "went on"]
    assert runs.of == {"a": 1}


@MODES
async def test_what_a_renamed_task_has_finished_is_not_done_again(durability: Durability) -> None:
    saver, runs = WatchedSaver(), Runs()

    def graph(name: str, action: Action) -> StateGraph:
        return fan([name, "late"], {name: runs.counted("it"), "late": action})

    await broken(graph("old", late), saver, durability)
    new = renamed(graph("new", logs("late")), saver, old="new")

    assert (await new.aget_state(thread())).next == ("late",)
    assert sorted((await new.ainvoke(None, thread()))["log"]) == ["it", "late"]
    assert runs.of == {"it": 1}


async def test_finished_sends_to_a_renamed_node_are_not_done_again() -> None:
    saver, bodies = WatchedSaver(), list[int]()
    failing = True

    async def work(given: Any) -> Any:
        if given["n"] == 3 and failing:
            return await late(given)
        bodies.append(given["n"])
        return {"log": [f"{given['n']}"]}

    def graph(name: str) -> StateGraph:
        sends = [Send(name, {"n": n}) for n in (1, 2, 3)]
        return chain(["a"], {"a": returns(sends)}).add_node(name, work)

    await broken(graph("old"), saver)
    failing = False

    assert await renamed(graph("new"), saver, old="new").ainvoke(None, thread()) == {"log": ["1", "2", "3"]}
    assert bodies == [1, 2, 3]


@MODES
async def test_a_join_that_has_seen_a_renamed_start_waits_for_the_others_only(durability: Durability) -> None:
    saver = WatchedSaver()

    def graph(start: str, end: str, action: Action) -> StateGraph:
        builder = fan([start, "b"]).add_node("c", action).add_edge("b", "c")
        return builder.add_node(end, logs("joined")).add_edge([start, "c"], end)

    await broken(graph("old", "join", fails(BOOM)), saver, durability)
    again = renamed(graph("new", "together", fails(BOOM)), saver, old="new", join="together")
    with pytest.raises(ValueError, match="boom"):
        await again.ainvoke(None, thread(), durability=durability)
    last = renamed(graph("new", "together", logs("c")), saver, old="new", join="together")

    assert (await last.ainvoke(None, thread(), durability=durability))["log"] == ["b", "old", "c", "joined"]


async def test_a_half_full_join_is_stored_under_its_new_name_and_needs_the_mapping_no_more() -> None:
    saver = WatchedSaver()

    def graph(start: str, d: Action) -> StateGraph:
        builder = fan([start, "b"]).add_node("c", logs("c") if start == "new" else fails(BOOM))
        builder.add_edge("b", "c").add_node("d", d).add_edge("c", "d")
        return builder.add_node("join", logs("joined")).add_edge([start, "d"], "join")

    await broken(graph("old", logs("d")), saver)
    with pytest.raises(ValueError, match="boom"):
        await renamed(graph("new", fails(BOOM)), saver, old="new").ainvoke(None, thread())
    graph_of_today = graph("new", logs("d")).compile(checkpointer=saver)

    assert (await graph_of_today.ainvoke(None, thread()))["log"] == ["b", "old", "c", "d", "joined"]


async def test_a_renamed_task_that_fails_again_leaves_its_siblings_results_both_times() -> None:
    saver, runs = WatchedSaver(), Runs()

    def graph(name: str, action: Action) -> StateGraph:
        return fan([name, "b"], {name: action, "b": runs.counted("b")})

    await broken(graph("old", late), saver)
    for action in (late, late):
        with pytest.raises(ValueError, match="boom"):
            await renamed(graph("new", action), saver, old="new").ainvoke(None, thread())

    assert sorted(
        (await renamed(graph("new", logs("n")), saver, old="new").ainvoke(None, thread()))["log"]
    ) == [*("b", "n")]
    assert runs.of == {"b": 1}


async def test_a_task_that_waits_on_a_join_with_a_renamed_start_keeps_its_results() -> None:
    saver, runs = WatchedSaver(), Runs()

    def graph(start: str, action: Action) -> StateGraph:
        builder = fan([start, "b"]).add_node("x", runs.counted("x")).add_edge([start, "b"], "x")
        return builder.add_node("y", action).add_edge(["b", start], "y")

    await broken(graph("old", late), saver)
    assert runs.of == {"x": 1}
    after = await renamed(graph("new", logs("y")), saver, old="new").ainvoke(None, thread())

    assert after["log"][-2:] == ["x", "y"]
    assert runs.of == {"x": 1}


async def test_a_graph_below_a_renamed_node_goes_on_where_it_was() -> None:
    saver, runs = WatchedSaver(), Runs()

    def graph(name: str, action: Action) -> StateGraph:
        below = chain(["one", "two"], {"one": runs.counted("one"), "two": action}).compile()

        async def calls(state: Log) -> Any:
            return await below.ainvoke({})

        return chain([name], {name: calls})

    await broken(graph("old", fails(BOOM)), saver)
    assert await renamed(graph("new", logs("two")), saver, old="new").ainvoke(None, thread()) == {
        "log": ["one", "two"]
    }
    assert runs.of == {"one": 1}


async def test_a_renamed_node_of_a_graph_below_is_followed_too() -> None:
    saver, runs = WatchedSaver(), Runs()

    def graph(name: str, action: Action, names: Mapping[str, str] | None = None) -> StateGraph:
        below = chain(["one", name], {"one": runs.counted("one"), name: action}).compile(renamed=names)

        async def calls(state: Log) -> Any:
            return await below.ainvoke({})

        return chain(["node"], {"node": calls})

    await broken(graph("old", fails(BOOM)), saver)
    new = graph("new", logs("two"), {"old": "new"}).compile(checkpointer=saver)

    assert await new.ainvoke(None, thread()) == {"log": ["one", "two"]}
    assert runs.of == {"one": 1}


@pytest.mark.parametrize("how", ["a goto", "Sends"])
async def test_what_a_command_as_input_started_under_the_old_name_is_not_done_again(how: str) -> None:
    saver, runs = WatchedSaver(), Runs()

    def graph(name: str, action: Action) -> StateGraph:
        builder = chain(["a"]).add_node(name, runs.counted("it")).add_node("late", action)
        return builder.add_conditional_edges(name, lambda state: END)

    goto: list[Any] = (
        ["old", "late"] if how == "a goto" else [Send("late", {}), Send("old", {}), Send("old", {})]
    )
    await graph("old", late).compile(checkpointer=saver).ainvoke({}, thread())
    with pytest.raises(ValueError, match="boom"):
        await graph("old", late).compile(checkpointer=saver).ainvoke(Command(goto=goto), thread())
    began = runs.of["it"]
    new = renamed(graph("new", logs("late")), saver, old="new")

    assert (await new.aget_state(thread())).next == ("late",)
    assert sorted((await new.ainvoke(None, thread()))["log"]) == ["a", *["it"] * began, "late"]
    assert runs.of["it"] == began


async def test_a_handler_that_has_finished_for_a_renamed_node_is_not_run_again() -> None:
    saver, runs = WatchedSaver(), Runs()

    async def handles(state: Any, error: Any = None) -> Any:
        runs.of["handler"] = runs.of.get("handler", 0) + 1
        return {"log": ["handled"]}

    def graph(name: str, action: Action, **names: str) -> Pregel:
        handler = f"__error_handler__{name}"
        builder = fan([name, "late"], {name: fails(ValueError("handled")), "late": action})
        return with_policies(
            builder.compile(checkpointer=saver, renamed=names),
            {name: Policies(handler=handler)},
            {handler: handles},
        )

    with pytest.raises(ValueError, match="boom"):
        await graph("old", late).ainvoke({}, thread())
    assert runs.of == {"handler": 1}
    result = await graph("new", logs("late"), old="new").ainvoke(None, thread())

    assert sorted(result["log"]) == ["handled", "late"]
    assert runs.of == {"handler": 1}


async def test_a_new_input_drops_what_waited_under_the_old_name() -> None:
    saver = WatchedSaver()
    await broken(by_an_edge("old", fails(BOOM)), saver)
    graph = renamed(by_an_edge("new", logs("new")), saver, old="new")

    assert (await graph.ainvoke({}, thread()))["log"] == ["a", "a", "new", "z"]
    assert (await graph.aget_state(thread())).next == ()


async def test_an_older_checkpoint_is_forked_under_the_new_name() -> None:
    saver = WatchedSaver()
    await by_an_edge("old", logs("old")).compile(checkpointer=saver).ainvoke({}, thread())
    at_old = [c async for c in saver.alist(thread()) if c.metadata["step"] == 1]
    graph = renamed(by_an_edge("new", logs("new")), saver, old="new")

    assert (await graph.aget_state(at_old[0].config)).next == ("new",)
    assert (await graph.ainvoke(None, at_old[0].config))["log"] == ["a", "new", "z"]


async def test_several_nodes_may_be_renamed_at_once_and_a_mapping_may_stay_when_nothing_needs_it() -> None:
    saver = WatchedSaver()
    await broken(chain(["a", "b", "c"], {"b": fails(BOOM)}), saver)
    graph = renamed(chain(["k", "l", "m"]), saver, a="k", b="l", c="m")

    assert (await graph.ainvoke(None, thread()))["log"] == ["a", "l", "m"]
    assert (await graph.ainvoke({}, thread()))["log"] == ["a", "l", "m", "k", "l", "m"]
    assert (await graph.ainvoke(None, thread()))["log"] == ["a", "l", "m", "k", "l", "m"]


async def test_names_with_a_plus_are_followed_in_joins() -> None:
    saver = WatchedSaver()

    def graph(start: str, action: Action) -> StateGraph:
        builder = fan([start, "b"]).add_node("c", action).add_edge("b", "c")
        return builder.add_node("join", logs("joined")).add_edge([start, "c"], "join")

    await broken(graph("x+y", fails(BOOM)), saver)
    graph_of_today = graph("u+v", logs("c")).compile(checkpointer=saver, renamed={"x+y": "u+v"})

    assert (await graph_of_today.ainvoke(None, thread()))["log"] == ["b", "x+y", "c", "joined"]


@MODES
async def test_a_run_whose_process_died_in_a_renamed_node_is_recovered(
    durability: Durability,
) -> None:
    clock = FakeClock()
    saver, gate = WatchedSaver(clock), Gate()

    def graph(name: str, action: Callable[[Any], Awaitable[Any]], **names: str) -> Pregel:
        builder = chain(["a", name, "z"], {name: action})
        return builder.compile(checkpointer=saver, name="mine", clock=clock, renamed=names)

    run = asyncio.create_task(graph("old", gate).ainvoke({}, thread(), durability=durability))
    await gate.entered.wait()
    for _ in range(30):
        await asyncio.sleep(0)
    saver.dead, saver.before_commit = True, _dead
    run.cancel()
    await asyncio.wait([run])
    saver.dead, saver.before_commit = False, None
    clock.advance(31)
    [recovered] = await recover(graph("new", logs("new"), old="new"))

    assert recovered.output == {"log": ["a", "new", "z"]}


async def _dead(commit: Any) -> None:
    raise ConnectionError("the process is gone")


async def test_a_state_key_that_a_waiting_node_needs_and_the_thread_lacks_is_named() -> None:
    class More(TypedDict, total=False):
        log: list[str]
        needed: int

    async def needs(state: Any) -> Any:
        return {"log": [str(state["needed"])]}

    saver = WatchedSaver()
    await broken(chain(["a", "b"], {"b": fails(BOOM)}), saver)
    builder = StateGraph(More).add_node("a", logs("a")).add_node("b", needs)
    graph = builder.add_edge(START, "a").add_edge("a", "b").add_edge("b", END).compile(checkpointer=saver)

    for _ in range(2):
        with pytest.raises(KeyError, match="needed") as refused:
            await graph.ainvoke(None, thread())
        assert any("During task with name 'b'" in note for note in refused.value.__notes__)
    assert (await graph.aget_state(thread())).next == ("b",), "it did not end"


# Whatever the graph


def called_otherwise(builder: StateGraph) -> StateGraph:
    """Build the graph with other names for all nodes. The new names sort as the old ones did."""

    def new(name: str) -> str:
        return name if name == START else f"new-{name}"

    def acting(action: Callable[..., Any]) -> Action:
        async def act(given: Any) -> Any:
            command = await action(given)
            return replace(command, goto=[Send(new(send.node), send.arg) for send in command.goto])

        return act

    def choosing(path: Callable[..., Any]) -> Callable[[Any], list[str]]:
        return lambda state: [new(target) for target in path(state)]

    other = StateGraph(builder.state_schema)
    for name, node in builder.nodes.items():
        other.add_node(new(name), acting(node.action), defer=node.defer)
        for branch in builder.branches[name].values():
            other.add_conditional_edges(new(name), choosing(branch.path))
    for start, end in builder.edges:
        other.add_edge(new(start), new(end))
    for starts, end in builder.waiting_edges:
        other.add_edge([new(start) for start in starts], new(end))
    return other


@pytest.mark.filterwarnings("ignore::perdure.errors.GraphStructureWarning")
@hypothesis.settings(max_examples=60)
@given(shapes(), st.sampled_from(DURABILITIES), st.data())
async def test_a_run_that_failed_anywhere_is_resumed_to_the_same_end_where_all_nodes_were_renamed(
    shape: Shape, mode: Durability, data: st.DataObject
) -> None:
    keys, _ = run_model(shape)
    victim = data.draw(st.sampled_from(keys["log"]), "victim")
    began: list[str] = []

    def begin(own: str) -> None:
        began.append(own)
        if own == victim and began.count(own) == 1:
            raise ZeroDivisionError(own)

    old, saver = build(shape, begin), WatchedSaver()
    with pytest.raises(ZeroDivisionError):
        await old.compile(checkpointer=saver).ainvoke({}, thread(), durability=mode)
    names = {name: f"new-{name}" for name in old.nodes}
    graph = called_otherwise(old).compile(checkpointer=saver, renamed=names)

    assert await graph.ainvoke(None, thread(), durability=mode) == keys
    assert Counter(began) - Counter(keys["log"]) == {victim: 1}, "what had finished is not run again"
