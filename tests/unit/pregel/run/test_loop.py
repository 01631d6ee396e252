"""A run from its opening to its end, stopped in every way, and gone on with."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from perdure.constants import START
from perdure.data import Command, Durability, Send
from perdure.errors import GraphRecursionError, InvalidUpdateError
from perdure.graph.state import StateGraph
from perdure.pregel.graph import Pregel
from tests.unit.pregel.graphs import Action, Gate, Log, Runs, chain, fails, fan, returns, thread
from tests.unit.pregel.savers import Brake, WatchedSaver

DURABILITIES: tuple[Durability, ...] = ("sync", "async", "exit")

Stop = Callable[[Awaitable[Any], anyio.Event], Awaitable[None]]


async def by_cancel(run: Awaitable[Any], entered: anyio.Event) -> None:
    task = asyncio.ensure_future(run)
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def by_wait_for(run: Awaitable[Any], entered: anyio.Event) -> None:
    async def until_entered() -> None:
        limit = asyncio.timeout(None)
        with pytest.raises(TimeoutError):
            await run_until(limit)

    async def run_until(limit: asyncio.Timeout) -> None:
        async with limit:
            group.start_soon(expire, limit)
            await run

    async def expire(limit: asyncio.Timeout) -> None:
        await entered.wait()
        limit.reschedule(0)

    async with anyio.create_task_group() as group:
        await until_entered()


async def by_scope(run: Awaitable[Any], entered: anyio.Event) -> None:
    scope = anyio.CancelScope()

    async def cancel() -> None:
        await entered.wait()
        scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(cancel)
        with scope:
            await run
    assert scope.cancelled_caught


STOPS = pytest.mark.parametrize("stop", [by_cancel, by_wait_for, by_scope])
WIDTHS = pytest.mark.parametrize("names", [["gate"], ["a", "gate"]], ids=["width 1", "width 2"])
LIMITS = pytest.mark.parametrize("limit", [None, 1, 2])
MODES = pytest.mark.parametrize("durability", DURABILITIES)


# Cancellation


@STOPS
@WIDTHS
@LIMITS
@pytest.mark.parametrize("stored", [False, True], ids=["no saver", "saver"])
async def test_a_cancelled_run_cancels_its_nodes_and_waits_for_them(
    stop: Stop, names: list[str], limit: int | None, stored: bool
) -> None:
    gate, after = Gate(), Runs()
    builder = fan(names, {"gate": gate}).add_node("after", after.counted("after")).add_edge("gate", "after")
    graph = builder.compile(checkpointer=WatchedSaver() if stored else None)

    await stop(graph.ainvoke({}, thread(max_concurrency=limit)), gate.entered)

    assert (gate.cancelled, gate.ended) == (1, 0)
    assert gate.cleaned.is_set()
    assert after.of == {}
    assert len(asyncio.all_tasks()) == 1


@STOPS
@WIDTHS
async def test_a_node_that_swallows_its_cancellation_does_not_keep_the_run_going(
    stop: Stop, names: list[str]
) -> None:
    entered, after = anyio.Event(), Runs()

    async def swallows(state: Log) -> Any:
        entered.set()
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            return {"log": ["swallowed"]}

    builder = (
        fan(names, {"gate": swallows}).add_node("after", after.counted("after")).add_edge("gate", "after")
    )

    await stop(builder.compile().ainvoke({}), entered)

    assert after.of == {}


@STOPS
async def test_no_step_of_a_child_graph_runs_after_the_parent_was_stopped(stop: Stop) -> None:
    gate, after = Gate(), Runs()
    child = chain(["gate", "after"], {"gate": gate, "after": after.counted("after")}).compile()

    async def invokes(state: Log) -> Any:
        return await child.ainvoke({})

    await stop(chain(["a"], {"a": invokes}).compile().ainvoke({}), gate.entered)

    assert gate.cleaned.is_set()
    assert after.of == {}


@MODES
@STOPS
async def test_of_a_cancelled_superstep_only_what_had_not_finished_runs_again(
    stop: Stop, durability: Durability
) -> None:
    saver, runs, gate = WatchedSaver(), Runs(), Gate({"log": ["gate"]})
    actions = {"a": runs.counted("a"), "gate": runs.counted("gate", gate)}
    builder = (
        fan(["a", "gate"], actions).add_node("join", runs.counted("join")).add_edge(["a", "gate"], "join")
    )
    graph = builder.compile(checkpointer=saver)

    await stop(graph.ainvoke({"log": ["in"]}, thread(), durability=durability), gate.entered)
    gate.open.set()
    result = await graph.ainvoke(None, thread(), durability=durability)

    assert result["log"] == ["in", "a", "gate", "join"]
    assert runs.of == {"a": 1, "gate": 2, "join": 1}


@MODES
async def test_a_thread_is_given_back_by_a_cancelled_run(durability: Durability) -> None:
    saver, gate = WatchedSaver(), Gate()
    graph = chain(["gate"], {"gate": gate}).compile(checkpointer=saver)
    await by_cancel(graph.ainvoke({}, thread(), durability=durability), gate.entered)
    gate.open.set()

    assert await graph.ainvoke({"x": 2}, thread(), durability=durability) == {"log": [], "x": 2}
    assert [commit.end.status for commit in saver.sent if commit.end] == ["cancelled", "success"]


@MODES
async def test_a_run_that_is_cancelled_again_while_it_stores_still_stores_and_gives_back(
    durability: Durability,
) -> None:
    saver, runs, gate = WatchedSaver(), Runs(), Gate()
    graph = chain(["a", "gate"], {"a": runs.counted("a"), "gate": gate}).compile(checkpointer=saver)
    run = asyncio.create_task(graph.ainvoke({}, thread(), durability=durability))
    await gate.entered.wait()
    brake = Brake(saver)
    run.cancel()
    await brake.held.wait()
    for _ in range(3):
        run.cancel()
        await anyio.lowlevel.checkpoint()
    assert not run.done()
    brake.released.set()
    with pytest.raises(asyncio.CancelledError):
        await run
    gate.open.set()

    assert await graph.ainvoke(None, thread(), durability=durability) == {"log": ["a"]}
    assert runs.of == {"a": 1}


# Failure


@MODES
async def test_twelve_that_end_together_are_stored_when_a_thirteenth_fails(durability: Durability) -> None:
    names = [f"n{i:02}" for i in range(12)]
    for _ in range(30):
        saver, runs, together, broken = WatchedSaver(), Runs(), anyio.Event(), [ValueError("thirteenth")]

        def waits(name: str, together: anyio.Event = together) -> Action:
            async def body(state: Log) -> Any:
                await together.wait()
                return {"log": [name]}

            return body

        async def thirteenth(state: Log, together: anyio.Event = together, broken: Any = broken) -> Any:
            for _ in range(3):
                await anyio.lowlevel.checkpoint()
            together.set()
            for _ in range(3):
                await anyio.lowlevel.checkpoint()
            if broken:
                raise broken.pop()
            return {"log": ["z"]}

        actions = {name: runs.counted(name, waits(name)) for name in names}
        graph = fan([*names, "z"], {**actions, "z": runs.counted("z", thirteenth)}).compile(
            checkpointer=saver
        )
        with pytest.raises(ValueError, match="thirteenth"):
            await graph.ainvoke({}, thread(), durability=durability)

        assert (await graph.ainvoke(None, thread(), durability=durability))["log"] == [*names, "z"]
        assert runs.of == {**dict.fromkeys(names, 1), "z": 2}


@MODES
async def test_a_node_whose_path_raised_runs_again_and_is_applied_once(durability: Durability) -> None:
    runs, broken = Runs(), True

    def path(state: Log) -> str:
        if broken:
            raise ValueError("in the path")
        return "b"

    builder = chain(["a"], {"a": runs.counted("a")}).add_node("b", runs.counted("b"))
    graph = builder.add_conditional_edges("a", path).compile(checkpointer=WatchedSaver())
    with pytest.raises(ValueError, match="in the path"):
        await graph.ainvoke({}, thread(), durability=durability)
    assert (await graph.aget_state(thread())).next == ("a",)
    broken = False

    assert (await graph.ainvoke(None, thread(), durability=durability))["log"] == ["a", "b"]
    assert runs.of == {"a": 2, "b": 1}


@MODES
async def test_a_failed_superstep_leaks_nothing_into_another_thread(durability: Durability) -> None:
    gate = Gate({"log": ["gate"]})
    once: list[Exception] = [ValueError("once")]

    async def fails_once(state: Log) -> Any:
        await gate.entered.wait()
        if once:
            raise once.pop()
        return {"log": ["bad"]}

    builder = fan(["good", "gate", "bad"], {"gate": gate, "bad": fails_once})
    graph = builder.compile(checkpointer=WatchedSaver())
    with pytest.raises(ValueError, match="once"):
        await graph.ainvoke({"log": ["one"], "x": 1}, thread("one"), durability=durability)
    gate.open.set()

    assert await graph.ainvoke({"log": ["two"]}, thread("two"), durability=durability) == {
        "log": ["two", "bad", "gate", "good"]
    }
    assert await graph.ainvoke(None, thread("one"), durability=durability) == {
        "log": ["one", "bad", "gate", "good"],
        "x": 1,
    }


@MODES
async def test_after_a_clash_of_writes_a_join_that_had_fired_is_still_due(durability: Durability) -> None:
    runs, clash = Runs(), True

    async def writes(state: Log) -> Any:
        return {"log": ["w"], "x": 1} if clash else {"log": ["w"]}

    builder = fan(["a", "b"]).add_node("j", runs.counted("j", writes)).add_edge(["a", "b"], "j")
    graph = (
        builder.add_node("k", runs.counted("k", writes))
        .add_edge("a", "k")
        .compile(checkpointer=WatchedSaver())
    )
    with pytest.raises(InvalidUpdateError, match="'x'"):
        await graph.ainvoke({}, thread(), durability=durability)

    assert [(task.name, task.result) for task in (await graph.aget_state(thread())).tasks] == [
        ("j", {"log": ["w"], "x": 1}),
        ("k", {"log": ["w"], "x": 1}),
    ]


# The recursion limit


def counting(runs: Runs, length: int, saver: WatchedSaver | None = None) -> Pregel:
    names = [f"n{i}" for i in range(length)]
    return chain(names, {name: runs.counted(name) for name in names}).compile(checkpointer=saver)


@pytest.mark.parametrize("length", [1, 2, 10])
async def test_a_chain_as_long_as_the_limit_runs_to_its_end(length: int) -> None:
    result = await counting(Runs(), length).ainvoke({}, {"recursion_limit": length})

    assert len(result["log"]) == length


async def test_a_chain_longer_than_the_limit_takes_the_limits_supersteps_and_fails() -> None:
    runs = Runs()
    with pytest.raises(
        GraphRecursionError, match=r"Recursion limit of 3 reached .* n3 would run next"
    ) as raised:
        await counting(runs, 4).ainvoke({}, {"recursion_limit": 3})

    assert runs.of == {"n0": 1, "n1": 1, "n2": 1}
    assert isinstance(raised.value, RecursionError)


@MODES
async def test_a_resumed_run_has_the_same_budget_as_a_fresh_one(durability: Durability) -> None:
    saver, runs = WatchedSaver(), Runs()
    graph = counting(runs, 9, saver)
    for expected in (3, 6):
        with pytest.raises(GraphRecursionError):
            await graph.ainvoke(
                {} if expected == 3 else None, thread(recursion_limit=3), durability=durability
            )
        assert len(runs.of) == expected
    result = await graph.ainvoke(None, thread(recursion_limit=3), durability=durability)

    assert result["log"] == [f"n{i}" for i in range(9)]
    assert set(runs.of.values()) == {1}


async def test_a_loop_without_an_end_stops_at_the_default_limit() -> None:
    runs = Runs()
    builder = chain(["a"], {"a": runs.counted("a", returns({"x": 1}))}).add_edge("a", "a")
    with pytest.raises(GraphRecursionError, match="10007"):
        await builder.compile().ainvoke({})

    assert runs.of["a"] == 10_007


async def test_a_child_graph_has_a_budget_of_its_own() -> None:
    child = counting(Runs(), 3)

    async def invokes(state: Log) -> Any:
        return await child.ainvoke({})

    graph = StateGraph(Log).add_node("a", invokes).add_edge(START, "a").compile()
    assert len((await graph.ainvoke({}, {"recursion_limit": 3}))["log"]) == 3
    with pytest.raises(GraphRecursionError, match="limit of 2"):
        await graph.ainvoke({}, {"recursion_limit": 2})


async def test_a_failing_node_that_was_sent_to_leaves_its_siblings_results() -> None:
    runs, broken = Runs(), True

    async def sent(number: int) -> Any:
        runs.of[str(number)] = runs.of.get(str(number), 0) + 1
        if broken and number == 2:
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
            raise ValueError("two")
        return {"log": [str(number)]}

    builder = chain(["a"], {"a": returns(Command(goto=[Send("b", n) for n in range(4)]))}).add_node("b", sent)
    graph = builder.compile(checkpointer=WatchedSaver())
    with pytest.raises(ValueError, match="two"):
        await graph.ainvoke({}, thread())
    broken = False

    assert (await graph.ainvoke(None, thread()))["log"] == ["0", "1", "2", "3"]
    assert runs.of == {"0": 1, "1": 1, "2": 2, "3": 1}


@MODES
async def test_what_is_not_an_exception_reaches_the_caller_as_itself_past_a_saver(
    durability: Durability,
) -> None:
    class Abort(BaseException):
        pass

    saver = WatchedSaver()
    graph = fan(["a", "b"], {"b": fails(Abort())}).compile(checkpointer=saver)
    with pytest.raises(Abort):
        await graph.ainvoke({}, thread(), durability=durability)

    assert [commit.end.status for commit in saver.sent if commit.end] == ["cancelled"]
