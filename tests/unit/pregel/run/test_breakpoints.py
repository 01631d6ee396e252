"""Breakpoints stop runs, and stopped runs continue."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from perdure.checkpoint.base import Commit
from perdure.checkpoint.memory import InMemorySaver
from perdure.constants import END
from perdure.data import Command, Durability, Send
from perdure.errors import GraphValidationError
from perdure.graph.state import StateGraph
from perdure.pregel.graph import Pregel
from tests.unit.pregel.graphs import Action, Gate, Log, chain, fan, returns, thread
from tests.unit.pregel.test_crashes import HOW, GoesOn, Scene

MODES = pytest.mark.parametrize("durability", ["sync", "async", "exit"])


def stopping(builder: StateGraph, **where: Any) -> Pregel:
    """Compile the graph with a saver and these breakpoints."""
    return builder.compile(checkpointer=InMemorySaver(), **where)


@MODES
async def test_a_run_stops_before_a_node_and_goes_on_with_none(durability: Durability) -> None:
    graph = stopping(chain(["a", "b", "c"]), interrupt_before=["b"])

    assert await graph.ainvoke({}, thread(), durability=durability) == {"log": ["a"]}
    assert (await graph.aget_state(thread())).next == ("b",)
    assert await graph.ainvoke(None, thread(), durability=durability) == {"log": ["a", "b", "c"]}


@MODES
async def test_a_run_stops_after_a_node_and_goes_on_with_none(durability: Durability) -> None:
    graph = stopping(chain(["a", "b", "c"]), interrupt_after=["b"])

    assert await graph.ainvoke({}, thread(), durability=durability) == {"log": ["a", "b"]}
    assert (await graph.aget_state(thread())).next == ("c",)
    assert await graph.ainvoke(None, thread(), durability=durability) == {"log": ["a", "b", "c"]}


async def test_a_star_stops_at_every_node_but_not_at_the_start() -> None:
    graph = stopping(chain(["a", "b"]), interrupt_before="*")

    assert await graph.ainvoke({}, thread()) == {"log": []}
    assert await graph.ainvoke(None, thread()) == {"log": ["a"]}
    assert await graph.ainvoke(None, thread()) == {"log": ["a", "b"]}


async def test_breakpoints_of_a_call_replace_those_of_the_graph() -> None:
    graph = stopping(chain(["a", "b", "c"]), interrupt_before=["b"], interrupt_after=["a"])

    assert await graph.ainvoke({}, thread(), interrupt_before=["c"], interrupt_after=["c"]) == {
        "log": ["a", "b"]
    }
    assert (await graph.aget_state(thread())).next == ("c",)


async def test_a_stop_after_the_node_before_does_not_stop_again_before_the_next() -> None:
    graph = stopping(chain(["a", "b", "c"]), interrupt_after=["a"], interrupt_before=["b"])

    assert await graph.ainvoke({}, thread()) == {"log": ["a"]}
    assert await graph.ainvoke(None, thread()) == {"log": ["a", "b", "c"]}


async def test_a_loop_stops_each_time_it_comes_by() -> None:
    builder = chain(["a"])
    builder.add_conditional_edges("a", lambda state: END if len(state["log"]) == 3 else "a")
    graph = stopping(builder, interrupt_before=["a"])
    outputs = [await graph.ainvoke({}, thread())]
    outputs += [await graph.ainvoke(None, thread()) for _ in range(3)]

    assert [len(output["log"]) for output in outputs] == [0, 1, 2, 3]


async def test_one_of_several_nodes_stops_them_all() -> None:
    graph = stopping(fan(["a", "b"]), interrupt_before=["b"])

    assert await graph.ainvoke({}, thread()) == {"log": []}
    assert (await graph.aget_state(thread())).next == ("a", "b")
    assert await graph.ainvoke(None, thread()) == {"log": ["a", "b"]}


async def test_a_stop_before_a_sent_node_keeps_the_packet() -> None:
    builder = chain(["a"], {"a": returns(Command(goto=[Send("b", {"x": 1}), Send("b", {"x": 2})]))})

    async def b(state: Log) -> Any:
        return {"log": [f"b{state['x']}"]}

    graph = stopping(builder.add_node("b", b), interrupt_before=["b"])

    assert await graph.ainvoke({}, thread()) == {"log": []}
    assert await graph.ainvoke(None, thread()) == {"log": ["b1", "b2"]}


async def test_a_new_input_does_not_pass_the_breakpoint() -> None:
    graph = stopping(chain(["a", "b"]), interrupt_before=["b"])
    await graph.ainvoke({}, thread())

    assert await graph.ainvoke({}, thread()) == {"log": ["a", "a"]}
    assert (await graph.aget_state(thread())).next == ("b",)


async def test_the_stream_tells_of_the_stop() -> None:
    graph = stopping(chain(["a", "b"]), interrupt_before=["b"])
    after = stopping(chain(["a", "b"]), interrupt_after=["b"])

    assert [e async for e in graph.astream({}, thread())] == [{"a": {"log": ["a"]}}, {"__interrupt__": ()}]
    assert [e async for e in after.astream({}, thread())][-1] == {"__interrupt__": ()}
    assert (await after.aget_state(thread())).next == ()


@pytest.mark.parametrize("where", [{"interrupt_before": ["b"]}, {"interrupt_after": ["a"]}], ids=str)
async def test_a_stream_stops_where_its_call_says(where: dict[str, Any]) -> None:
    graph = stopping(chain(["a", "b"]))
    events = [event async for event in graph.astream({}, thread(), **where)]

    assert events == [{"a": {"log": ["a"]}}, {"__interrupt__": ()}]
    assert (await graph.aget_state(thread())).next == ("b",)


async def test_without_a_saver_the_run_just_stops() -> None:
    graph = chain(["a", "b"]).compile(interrupt_before=["b"])

    assert await graph.ainvoke({}) == {"log": ["a"]}


@HOW
async def test_a_run_that_is_continued_after_a_crash_still_stops(goes_on: GoesOn) -> None:
    scene, gate = Scene(), Gate()
    dying = scene.graph("a", "b", "c", b=gate)
    run = dying.ainvoke({}, thread(), interrupt_before=["c"], durability="sync")
    await scene.kill(asyncio.create_task(run), gate)
    graph = scene.graph("a", "b", "c")

    assert await goes_on(graph) == {"log": ["a", "b"]}
    assert (await graph.aget_state(thread())).next == ("c",)


@HOW
@pytest.mark.parametrize("durability", ["sync", "exit"])
async def test_a_crash_behind_a_passed_breakpoint_does_not_raise_it_again(
    goes_on: GoesOn, durability: Durability
) -> None:
    scene, gate = Scene(), Gate()
    dying = scene.graph("a", "b", b=gate)
    await dying.ainvoke({}, thread(), interrupt_before=["b"], durability=durability)
    run = dying.ainvoke(None, thread(), interrupt_before=["b"], durability=durability)
    await scene.kill(asyncio.create_task(run), gate)

    assert await goes_on(scene.graph("a", "b")) == {"log": ["a", "b"]}


@HOW
@MODES
@pytest.mark.parametrize("nth", [1, 2, 3])
async def test_a_stop_after_a_node_is_stored_with_what_the_node_did(
    goes_on: GoesOn, durability: Durability, nth: int
) -> None:
    scene = Scene()
    graph = scene.graph("a", "b", "c")
    scene.saver.before_commit = dies_at(scene, nth)
    try:
        await graph.ainvoke({}, thread(), interrupt_after=["a"], durability=durability)
    except ConnectionError:
        revive(scene)
        await goes_on(graph)
    else:
        assert await scene.saver.aorphans() == []

    assert (await graph.aget_state(thread())).next == ("b",)
    assert scene.runs.of["a"] <= 2
    assert "b" not in scene.runs.of


def dies_at(scene: Scene, nth: int) -> Callable[[Commit], Awaitable[None]]:
    """Return a `before_commit` that kills the process while it sends the nth commit."""

    async def before(commit: Commit) -> None:
        if len(scene.saver.sent) >= nth:
            scene.saver.dead = True
            raise ConnectionError("this process is dead")

    return before


def revive(scene: Scene) -> None:
    scene.saver.dead, scene.saver.before_commit = False, None
    scene.clock.advance(31)


@HOW
async def test_a_breakpoint_that_a_fork_was_told_to_pass_is_passed_after_a_crash_too(goes_on: GoesOn) -> None:
    scene, gate = Scene(), Gate()

    def build(c: Action) -> Pregel:
        actions = {name: scene.runs.counted(name) for name in "ab"}
        builder = fan(["b", "c"], {**actions, "c": c})
        return builder.compile(checkpointer=scene.saver, clock=scene.clock, interrupt_before=["c"])

    graph = build(scene.runs.counted("c"))
    await graph.ainvoke({}, thread())
    stopped = (await graph.aget_state(thread())).config
    await graph.ainvoke(None, thread())
    run = asyncio.create_task(build(gate).ainvoke(None, stopped, durability="sync"))
    orphan = await scene.kill(run, gate)

    assert orphan.started
    assert await goes_on(graph) == {"log": ["b", "c"]}
    assert scene.runs.of == {"c": 1}


async def test_breakpoints_of_a_graph_below_a_node_are_refused() -> None:
    child = chain(["a"]).compile(interrupt_before=["a"])

    async def calls(state: Log) -> Any:
        return await child.ainvoke({})

    graph = chain(["outer"], {"outer": calls}).compile(checkpointer=InMemorySaver())

    with pytest.raises(GraphValidationError, match=re.escape("runs below node 'outer' and has breakpoints")):
        await graph.ainvoke({}, thread())
