"""Cases from the field, on a real Postgres: what was stored is kept, and never computed again."""

from __future__ import annotations

import operator
from collections.abc import AsyncIterator
from typing import Annotated, Any, TypedDict

import anyio
import psycopg
import pytest

from perdure import START, Pregel, Send, StateGraph
from perdure.data import Durability
from perdure_checkpointers.postgres import PostgresSaver

DURABILITIES: list[Durability] = ["sync", "async", "exit"]


class State(TypedDict):
    found: Annotated[list[str], operator.add]
    x: int


@pytest.fixture
async def saver(database_url: str) -> AsyncIterator[PostgresSaver]:
    async with PostgresSaver.from_conn_string(database_url) as saver:
        yield saver


def thread(name: str, **more: Any) -> dict[str, Any]:
    return {"configurable": {"thread_id": name, **more}}


async def test_of_thirteen_that_end_at_once_only_the_failed_one_runs_again(saver: PostgresSaver) -> None:
    """Repeat it thirty times."""
    ran: list[int] = []
    fail = True

    async def work(item: dict[str, int]) -> dict[str, list[str]]:
        ran.append(item["n"])
        if item["n"] == 12 and fail:
            raise RuntimeError("the thirteenth")
        return {"found": [str(item["n"])]}

    def scatter(state: State) -> list[Send]:
        return [Send("work", {"n": n}) for n in range(13)]

    graph = StateGraph(State).add_node("work", work).add_conditional_edges(START, scatter).compile(saver)
    for round_ in range(30):
        config = thread(f"round-{round_}")
        fail = True
        with pytest.raises(RuntimeError, match="the thirteenth"):
            await graph.ainvoke({}, config, durability="sync")
        fail = False
        ran.clear()
        result = await graph.ainvoke(None, config, durability="sync")
        assert ran == [12]
        assert result["found"] == [str(n) for n in range(13)]


async def test_no_checkpoint_is_seen_before_the_writes_that_it_supersedes(
    saver: PostgresSaver, database_url: str
) -> None:
    """Whenever a checkpoint can be read, the writes that it was made of can be read too."""

    async def step(state: State) -> dict[str, Any]:
        return {"x": state["x"] + 1, "found": [str(state["x"])]}

    builder = StateGraph(State).add_node("step", step).add_edge(START, "step")
    builder.add_conditional_edges("step", lambda state: "step" if state["x"] < 60 else "__end__")
    graph = builder.compile(saver)
    query = """
        SELECT count(*) FROM perdure.checkpoints c
        WHERE (c.metadata ->> 'step')::int >= 1 AND NOT EXISTS (
            SELECT FROM perdure.task_writes w
            WHERE w.thread_id = c.thread_id AND w.ns = c.ns AND w.checkpoint_id = c.parent_id
        )
    """
    looks = 0
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:

        async def look() -> None:
            nonlocal looks
            while True:
                row = await (await connection.execute(query)).fetchone()
                assert row == (0,)
                looks += 1

        async with anyio.create_task_group() as group:
            group.start_soon(look)
            await graph.ainvoke({"x": 0}, thread("t"), durability="sync")
            group.cancel_scope.cancel()
    assert looks > 5


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_after_a_cancellation_only_the_unfinished_node_runs(
    durability: Durability, saver: PostgresSaver
) -> None:
    ran: list[str] = []
    stuck = True
    done = anyio.Event()

    async def quick(state: State) -> dict[str, list[str]]:
        ran.append("quick")
        done.set()
        return {"found": ["quick"]}

    async def endless(state: State) -> dict[str, list[str]]:
        ran.append("endless")
        if stuck:
            await anyio.sleep_forever()
        return {"found": ["endless"]}

    builder = StateGraph(State).add_node("quick", quick).add_node("endless", endless)
    graph = builder.add_edge(START, "quick").add_edge(START, "endless").compile(saver)
    with anyio.move_on_after(30) as scope:
        async with anyio.create_task_group() as group:

            async def stop() -> None:
                await done.wait()
                await anyio.lowlevel.checkpoint()
                scope.cancel()

            group.start_soon(stop)
            await graph.ainvoke({}, thread("t"), durability=durability)
    assert sorted(ran) == ["endless", "quick"]
    ran.clear()
    stuck = False
    result = await graph.ainvoke(None, thread("t"), durability=durability)
    assert ran == ["endless"]
    assert result["found"] == ["endless", "quick"]


async def test_a_failed_superstep_leaks_nothing_into_another_thread(saver: PostgresSaver) -> None:

    async def good(state: State) -> dict[str, list[str]]:
        return {"found": [f"good {state['x']}"]}

    async def bad(state: State) -> dict[str, list[str]]:
        if state["x"] == 1:
            raise RuntimeError("bad")
        return {"found": [f"bad {state['x']}"]}

    builder = StateGraph(State).add_node("good", good).add_node("bad", bad)
    graph = builder.add_edge(START, "good").add_edge(START, "bad").compile(saver)
    with pytest.raises(RuntimeError, match="bad"):
        await graph.ainvoke({"x": 1}, thread("first"))
    assert await graph.ainvoke({"x": 2}, thread("second")) == {"x": 2, "found": ["bad 2", "good 2"]}


def chain(length: int, saver: PostgresSaver, fail_at: dict[str, bool]) -> Pregel:
    builder = StateGraph(State)
    before = START
    for n in range(length):
        name = f"n{n}"

        async def step(state: State, name: str = name) -> dict[str, list[str]]:
            if fail_at.pop(name, False):
                raise RuntimeError(name)
            return {"found": [name]}

        builder.add_node(name, step).add_edge(before, name)
        before = name
    return builder.compile(saver)


async def test_a_chain_of_n_nodes_needs_a_limit_of_n_fresh_and_resumed(saver: PostgresSaver) -> None:
    graph = chain(5, saver, {"n2": True})
    config = {**thread("t"), "recursion_limit": 5}
    with pytest.raises(RuntimeError, match="n2"):
        await graph.ainvoke({}, config)
    result = await graph.ainvoke(None, {**config, "recursion_limit": 3})
    assert result["found"] == ["n0", "n1", "n2", "n3", "n4"]
    assert len((await graph.ainvoke({}, {**thread("other"), "recursion_limit": 5}))["found"]) == 5


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_a_node_whose_conditional_edge_raised_has_not_finished(
    durability: Durability, saver: PostgresSaver
) -> None:
    broken = True

    async def first(state: State) -> dict[str, list[str]]:
        return {"found": ["first"]}

    async def second(state: State) -> dict[str, list[str]]:
        return {"found": ["second"]}

    def route(state: State) -> str:
        assert state["found"] == ["first"]
        if broken:
            raise RuntimeError("no way")
        return "second"

    builder = StateGraph(State).add_node("first", first).add_node("second", second)
    graph = builder.add_edge(START, "first").add_conditional_edges("first", route, ["second"]).compile(saver)
    with pytest.raises(RuntimeError, match="no way"):
        await graph.ainvoke({}, thread("t"), durability=durability)
    broken = False
    assert (await graph.ainvoke(None, thread("t"), durability=durability))["found"] == ["first", "second"]


async def test_two_branches_of_one_checkpoint_each_read_their_own(saver: PostgresSaver) -> None:
    """One of them fails, and is run again."""
    fail: dict[str, bool] = {}
    graph = chain(3, saver, fail)
    await graph.ainvoke({"x": 0}, thread("t"))
    root = (await graph.aget_state(thread("t"))).config["configurable"]["checkpoint_id"]
    left = await graph.ainvoke({"x": 1, "found": ["left"]}, thread("t", checkpoint_id=root))
    fail["n1"] = True
    with pytest.raises(RuntimeError, match="n1"):
        await graph.ainvoke({"x": 2, "found": ["right"]}, thread("t", checkpoint_id=root))
    right = await graph.ainvoke(None, thread("t"))
    nodes = ["n0", "n1", "n2"]
    assert left == {"x": 1, "found": [*nodes, "left", *nodes]}
    assert right == {"x": 2, "found": [*nodes, "right", *nodes]}
    heads = [
        stored.checkpoint["channel_values"]["found"]
        async for stored in saver.alist(thread("t"))
        if stored.metadata["step"] == 8
    ]
    assert sorted(heads) == sorted([left["found"], right["found"]])


@pytest.mark.parametrize("durability", DURABILITIES)
async def test_a_half_full_join_is_kept_when_a_start_of_it_has_another_name(
    saver: PostgresSaver, durability: Durability
) -> None:
    failing = True

    def say(name: str) -> Any:
        async def node(state: State) -> dict[str, list[str]]:
            if failing and name in {"c", "d"}:
                raise RuntimeError(name)
            return {"found": [name]}

        return node

    def graph(start: str, **renamed: str) -> Pregel:
        builder = StateGraph(State)
        for name in (start, "b", "c", "d", "join"):
            builder.add_node(name, say("start" if name == start else name))
        builder.add_edge(START, start).add_edge(START, "b").add_edge("b", "c").add_edge("c", "d")
        return builder.add_edge([start, "d"], "join").compile(saver, renamed=renamed)

    with pytest.raises(RuntimeError, match="c"):
        await graph("old").ainvoke({}, thread("t"), durability=durability)
    assert (await graph("new", old="new").aget_state(thread("t"))).next == ("c",)
    failing = False
    result = await graph("new", old="new").ainvoke(None, thread("t"), durability=durability)

    assert result["found"] == ["b", "start", "c", "d", "join"]
