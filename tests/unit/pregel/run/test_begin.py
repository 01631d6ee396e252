"""The start of a run: its input, thread and claim, or the node of another run whose child it is."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from perdure.checkpoint.memory import InMemorySaver
from perdure.constants import START
from perdure.data import Durability, Send
from perdure.errors import (
    EmptyInputError,
    InvalidUpdateError,
    MissingThreadError,
    ThreadBusyError,
    UnserializableValueError,
)
from perdure.graph.state import StateGraph
from perdure.pregel.graph import Pregel
from tests.unit.pregel.graphs import Gate, Log, Runs, chain, returns, thread
from tests.unit.pregel.savers import WatchedSaver

MODES = pytest.mark.parametrize("durability", ["sync", "async", "exit"])


async def history(saver: InMemorySaver, namespace: str = "") -> list[Any]:
    """Return all checkpoints of a thread, newest first."""
    config = {"configurable": {"thread_id": "t", "checkpoint_ns": namespace}}
    return [checkpoint async for checkpoint in saver.alist(config)]


# Input


@pytest.mark.parametrize("given", [5, "x", [], [("x", 1)], object(), 0, False, ""])
async def test_an_input_that_is_no_mapping_is_refused_before_anything_is_claimed_or_stored(
    given: Any,
) -> None:
    saver = WatchedSaver()
    for graph in (chain(["a"]).compile(), chain(["a"]).compile(checkpointer=saver)):
        with pytest.raises(
            InvalidUpdateError, match=r"Expected dict, got .*: the input of graph 'LangGraph'"
        ):
            await graph.ainvoke(given, thread())

    assert (saver.claims, saver.sent) == ([], [])


async def test_no_input_and_nothing_stored_is_refused() -> None:
    saver = WatchedSaver()
    for graph in (chain(["a"]).compile(), chain(["a"]).compile(checkpointer=saver)):
        with pytest.raises(EmptyInputError, match=r"Received no input for __start__.*\(\{\} for none\)"):
            await graph.ainvoke(None, thread())

    assert saver.sent == []
    assert await chain(["a"]).compile(checkpointer=saver).ainvoke({}, thread()) == {"log": ["a"]}


async def test_a_graph_with_a_saver_needs_a_thread() -> None:
    saver = WatchedSaver()
    with pytest.raises(MissingThreadError, match="thread_id"):
        await chain(["a"]).compile(checkpointer=saver).ainvoke({})

    assert saver.claims == []


async def test_an_empty_input_is_an_input() -> None:
    assert await chain(["a"]).compile().ainvoke({}) == {"log": ["a"]}


async def test_a_thread_remembers() -> None:
    graph = chain(["a"]).compile(checkpointer=WatchedSaver())
    await graph.ainvoke({"log": ["one"], "x": 1}, thread())

    assert await graph.ainvoke({"log": ["two"]}, thread()) == {"log": ["one", "a", "two", "a"], "x": 1}
    assert await graph.ainvoke({"log": ["other"]}, thread("other")) == {"log": ["other", "a"]}


async def test_a_new_input_drops_what_the_thread_had_left_to_do() -> None:
    runs, broken = Runs(), [ValueError("boom")]

    async def fails_once(state: Log) -> Any:
        if broken:
            raise broken.pop()
        return {"log": ["b"]}

    sends: Any = [Send("sent", n) for n in range(3)]
    builder = chain(["a", "b"], {"a": returns(sends), "b": fails_once}).add_node("sent", runs.counted("sent"))
    graph = builder.compile(checkpointer=WatchedSaver())
    with pytest.raises(ValueError, match="boom"):
        await graph.ainvoke({}, thread())
    runs.of.clear()
    result = await graph.ainvoke({"log": ["new"]}, thread())

    assert runs.of == {"sent": 3}, "those of the new input alone"
    assert result["log"][0] == "new"


async def test_a_thread_with_nothing_left_to_do_returns_its_state() -> None:
    saver = WatchedSaver()
    graph = chain(["a"]).compile(checkpointer=saver)
    await graph.ainvoke({"x": 1}, thread())
    before = await history(saver)

    assert await graph.ainvoke(None, thread()) == {"log": ["a"], "x": 1}
    assert len(await history(saver)) == len(before)


async def test_a_busy_thread_is_refused_with_who_holds_it() -> None:
    saver, gate = WatchedSaver(), Gate()
    graph = chain(["gate"], {"gate": gate}).compile(checkpointer=saver)
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: graph.ainvoke({}, thread(run_id="holder")))
        await gate.entered.wait()
        with pytest.raises(ThreadBusyError, match="holder"):
            await graph.ainvoke({}, thread())
        gate.open.set()

    assert await graph.ainvoke({}, thread()) == {"log": []}


async def test_a_second_call_with_the_run_id_of_the_first_is_another_run_and_finds_the_thread_busy() -> None:
    saver, gate = WatchedSaver(), Gate({"log": ["gate"]})
    graph = chain(["gate"], {"gate": gate}).compile(checkpointer=saver)
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: graph.ainvoke({"x": 1}, thread(run_id="r")))
        await gate.entered.wait()
        with pytest.raises(ThreadBusyError, match="'r'"):
            await chain(["gate"]).compile(checkpointer=saver).ainvoke({"x": 2}, thread(run_id="r"))
        gate.open.set()

    assert gate.ended == 1
    assert (await graph.aget_state(thread())).values == {"log": ["gate"], "x": 1}


# Children


def parent_of(child: Pregel, saver: WatchedSaver | None, runs: Runs | None = None) -> Pregel:
    async def invokes(state: Log) -> Any:
        return {"log": (await child.ainvoke({}))["log"]}

    counted = (runs or Runs()).counted("parent", invokes)
    return StateGraph(Log).add_node("parent", counted).add_edge(START, "parent").compile(checkpointer=saver)


@MODES
async def test_a_child_runs_on_its_parents_thread_under_its_claim(durability: Durability) -> None:
    saver = WatchedSaver()
    parent = parent_of(chain(["a", "b"]).compile(), saver)

    assert (await parent.ainvoke({}, thread(), durability=durability))["log"] == ["a", "b"]
    assert len(saver.claims) == 1
    assert {commit.thread_id for commit in saver.sent} == {"t"}
    namespaces = {row.ns for commit in saver.sent for row in commit.checkpoints} - {""}
    if durability == "exit":
        assert namespaces == set(), "a child that succeeds stores nothing before its parent ends"
        return
    [namespace] = namespaces
    [task_id] = {
        row.task_id for c in saver.sent for row in c.writes if row.ns == "" and "parent" in row.task_path
    }
    assert namespace == f"parent:{task_id}"
    root = {c.checkpoint["id"] for c in await history(saver)}
    assert all(c.metadata["parents"][""] in root for c in await history(saver, namespace))


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_a_resumed_child_continues_where_it_stopped(durability: Durability) -> None:
    saver, runs, broken = WatchedSaver(), Runs(), [ValueError("boom")]

    async def fails_once(state: Log) -> Any:
        if broken:
            raise broken.pop()
        return {"log": ["b"]}

    child = chain(["a", "b"], {"a": runs.counted("a"), "b": fails_once}).compile()
    parent = parent_of(child, saver, runs)
    with pytest.raises(ValueError, match="boom"):
        await parent.ainvoke({}, thread(), durability=durability)

    assert (await parent.ainvoke(None, thread(), durability=durability))["log"] == ["a", "b"]
    assert runs.of == {"parent": 2, "a": 1}


@pytest.mark.parametrize("durability", ["sync", "async"])
async def test_a_child_that_had_finished_is_not_run_again(durability: Durability) -> None:
    saver, runs, broken = WatchedSaver(), Runs(), [ValueError("boom")]
    children = [chain([name], {name: runs.counted(name)}).compile() for name in ("one", "two")]

    async def invokes(state: Log) -> Any:
        log = [entry for child in children for entry in (await child.ainvoke({}))["log"]]
        if broken:
            raise broken.pop()
        return {"log": log}

    graph = chain(["a"], {"a": invokes}).compile(checkpointer=saver)
    with pytest.raises(ValueError, match="boom"):
        await graph.ainvoke({}, thread(), durability=durability)

    assert (await graph.ainvoke(None, thread(), durability=durability))["log"] == ["one", "two"]
    assert runs.of == {"one": 1, "two": 1}


async def test_a_child_of_a_later_superstep_starts_anew() -> None:
    runs = Runs()
    child = chain(["c"], {"c": runs.counted("c")}).compile()

    async def invokes(state: Log) -> Any:
        return await child.ainvoke({})

    graph = chain(["a", "b"], {"a": invokes, "b": invokes}).compile(checkpointer=WatchedSaver())

    assert (await graph.ainvoke({}, thread()))["log"] == ["c", "c"]
    assert (await graph.ainvoke({}, thread()))["log"] == ["c"] * 4
    assert runs.of == {"c": 4}


async def test_a_grandchild_is_resumed_too() -> None:
    saver, runs, broken = WatchedSaver(), Runs(), [ValueError("boom")]

    async def fails_once(state: Log) -> Any:
        if broken:
            raise broken.pop()

    grandchild = chain(["a", "b"], {"a": runs.counted("a"), "b": fails_once}).compile()
    parent = parent_of(parent_of(grandchild, None), saver)
    with pytest.raises(ValueError, match="boom"):
        await parent.ainvoke({}, thread())

    assert (await parent.ainvoke(None, thread()))["log"] == ["a"]
    assert runs.of == {"a": 1}
    assert max(row.ns.count("|") for c in saver.sent for row in c.checkpoints) == 1


async def test_a_child_without_input_that_has_nothing_to_resume_is_refused() -> None:
    child = chain(["c"]).compile()

    async def invokes(state: Log) -> Any:
        return await child.ainvoke(None)

    with pytest.raises(EmptyInputError):
        await chain(["a"], {"a": invokes}).compile(checkpointer=WatchedSaver()).ainvoke({}, thread())


@pytest.mark.parametrize("own_saver", [False, True])
async def test_a_node_that_invokes_its_own_thread_is_refused(own_saver: bool) -> None:
    saver = WatchedSaver()
    child = chain(["c"]).compile(checkpointer=saver if own_saver else None)

    async def invokes(state: Log) -> Any:
        return await child.ainvoke({}, thread())

    with pytest.raises(
        ThreadBusyError, match="Node 'a' invokes a graph on thread 't', on which it runs itself"
    ):
        await chain(["a"], {"a": invokes}).compile(checkpointer=saver).ainvoke({}, thread())


async def test_a_node_may_run_a_graph_on_another_thread() -> None:
    saver = WatchedSaver()
    child = chain(["c"]).compile(checkpointer=saver)

    async def invokes(state: Log) -> Any:
        return await child.ainvoke({}, thread("other"))

    await chain(["a"], {"a": invokes}).compile(checkpointer=saver).ainvoke({}, thread())

    assert [claim.thread_id for claim in saver.claims] == ["t", "other"]


async def test_a_graph_without_a_saver_on_another_thread_is_kept_by_the_saver_around_it() -> None:
    saver = WatchedSaver()
    child = chain(["c"]).compile()

    async def invokes(state: Log) -> Any:
        return {"log": (await child.ainvoke({}, thread("other")))["log"]}

    graph = chain(["a"], {"a": invokes}).compile(checkpointer=saver)
    await graph.ainvoke({}, thread())

    assert (await graph.ainvoke({}, thread()))["log"] == ["c", "c", "c"], "the other thread remembers"
    kept = chain(["c"]).compile(checkpointer=saver)
    assert (await kept.aget_state(thread("other"))).values == {"log": ["c", "c"]}


async def test_what_a_saver_refuses_of_a_child_gives_the_thread_back_at_once() -> None:
    saver, child = WatchedSaver(), chain(["c"]).compile()
    metadata: dict[str, Any] = {"when": object()}

    async def invokes(state: Log) -> Any:
        return {"log": (await child.ainvoke({}, {"metadata": metadata}))["log"]}

    graph = chain(["a"], {"a": invokes}).compile(checkpointer=saver)
    with pytest.raises(UnserializableValueError, match="'when'"):
        await graph.ainvoke({}, thread(), durability="sync")
    metadata["when"] = "today"

    assert await graph.ainvoke({}, thread(), durability="sync") == {"log": ["c"]}


async def test_the_config_of_a_childs_state_means_the_head_of_its_thread() -> None:
    saver = WatchedSaver()
    parent = parent_of(chain(["c"]).compile(), saver)
    await parent.ainvoke({"x": 1}, thread())
    [config, *_] = [
        stored.config
        async for stored in saver.alist(thread())
        if stored.config["configurable"]["checkpoint_ns"]
    ]

    assert await parent.ainvoke({}, config) == {"log": ["c", "c"], "x": 1}
    assert (await parent.aget_state(thread())).values == {"log": ["c", "c"], "x": 1}


async def test_a_child_that_keeps_nothing_stores_nothing() -> None:
    saver = WatchedSaver()
    parent = parent_of(chain(["c"]).compile(checkpointer=False), saver)

    assert (await parent.ainvoke({}, thread()))["log"] == ["c"]
    assert {row.ns for commit in saver.sent for row in commit.checkpoints} == {""}
