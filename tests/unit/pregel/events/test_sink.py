"""The events that a reader receives, their moments, and the end of a run whose reader leaves."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, cast

import anyio
import pytest

from perdure.checkpoint.base import Commit
from perdure.constants import START
from perdure.data import Command, Durability, Send
from perdure.errors import GraphValidationError
from perdure.graph.state import StateGraph
from perdure.pregel.events.buffer import BUFFER_SIZE
from perdure.pregel.graph import Pregel
from perdure.runtime import get_runtime
from tests.unit.pregel.graphs import Gate, Log, Runs, chain, fails, fan, logs, returns, thread
from tests.unit.pregel.savers import Brake, WatchedSaver


async def events(graph: Pregel, given: Any, config: Any = None, **more: Any) -> list[Any]:
    return [event async for event in graph.astream(given, config, **more)]


def left_to_close(stream: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
    """Return a stream as an asynchronous generator, which can be closed."""
    return cast("AsyncGenerator[Any, None]", stream)


def current_task() -> asyncio.Task[Any]:
    """Return the asyncio task of the test."""
    task = asyncio.current_task()
    assert task is not None
    return task


# Shapes


async def test_updates_are_told_by_node() -> None:
    builder = chain(["a", "b", "c", "d"], {"b": returns(None), "c": returns({"x": 1, "y": 2})})

    assert await events(builder.compile(), {}) == [
        {"a": {"log": ["a"]}},
        {"b": None},
        {"c": {"x": 1, "y": 2}},
        {"d": {"log": ["d"]}},
    ]


async def test_values_are_told_after_the_input_and_after_supersteps_that_changed_them() -> None:
    builder = chain(["a", "b", "c"], {"b": returns(None)})

    assert await events(builder.compile(), {"x": 1}, stream_mode="values") == [
        {"log": [], "x": 1},
        {"log": ["a"], "x": 1},
        {"log": ["a", "c"], "x": 1},
    ]


async def test_several_modes_are_told_apart_updates_before_values() -> None:
    assert await events(chain(["a"]).compile(), {"x": 1}, stream_mode=["values", "updates"]) == [
        ("values", {"log": [], "x": 1}),
        ("updates", {"a": {"log": ["a"]}}),
        ("values", {"log": ["a"], "x": 1}),
    ]


async def test_nodes_of_a_stream_are_given_its_context() -> None:
    async def asks(state: Log) -> Any:
        return {"y": get_runtime().context}

    graph = chain(["a"], {"a": asks}).compile()

    assert await events(graph, {}, context="whose") == [{"a": {"y": "whose"}}]


async def test_output_keys_narrow_updates_and_values() -> None:
    builder = chain(["a", "b"], {"a": returns({"x": 1, "y": 1}), "b": returns({"y": 2})})

    assert await events(builder.compile(), {}, stream_mode=["updates", "values"], output_keys=["x"]) == [
        ("updates", {"a": {"x": 1}}),
        ("values", {"x": 1}),
        ("updates", {"b": None}),
    ]


async def test_each_send_is_told_and_a_key_written_twice_as_a_list() -> None:
    twice = Command(update=[("log", ["1"]), ("log", ["2"])])
    builder = chain(["a"], {"a": returns(Command(goto=[Send("b", 0), Send("b", 1)]))}).add_node(
        "b", returns(twice)
    )

    assert await events(builder.compile(), {}) == [
        {"a": None},
        {"b": [{"log": ["1"]}, {"log": ["2"]}]},
        {"b": [{"log": ["1"]}, {"log": ["2"]}]},
    ]


async def test_updates_are_told_as_tasks_end_not_when_the_superstep_does() -> None:
    gate = Gate({"log": ["gate"]})
    stream = fan(["gate", "quick"], {"gate": gate}).compile().astream({})

    assert await anext(stream) == {"quick": {"log": ["quick"]}}
    assert gate.ended == 0
    gate.open.set()
    assert [event async for event in stream] == [{"gate": {"log": ["gate"]}}]


async def test_a_reader_may_change_what_it_is_told() -> None:
    graph = chain(["a", "b"]).compile()
    last = None
    async for mode, event in graph.astream({}, stream_mode=["updates", "values"]):
        for value in event.values():
            if isinstance(value, list):
                value.append("spoilt")
            else:
                value["log"].append("spoilt")
        last = (mode, event)

    assert last == ("values", {"log": ["a", "b", "spoilt"]})


async def test_a_failing_task_tells_no_update_and_the_error_comes_from_the_iterator() -> None:
    error = ValueError("boom")
    stream = chain(["a", "b"], {"b": fails(error)}).compile().astream({})
    told = [await anext(stream)]
    with pytest.raises(ValueError, match="boom") as raised:
        await anext(stream)

    assert told == [{"a": {"log": ["a"]}}]
    assert raised.value is error


async def test_an_unknown_mode_is_refused_at_once_with_those_that_exist() -> None:
    with pytest.raises(GraphValidationError, match=r"Unknown stream_mode 'tokens'. Known: values, updates"):
        chain(["a"]).compile().astream({}, stream_mode=cast("Any", "tokens"))


async def test_a_run_begins_when_its_events_are_asked_for() -> None:
    saver = WatchedSaver()
    chain(["a"]).compile(checkpointer=saver).astream({}, thread())
    await asyncio.sleep(0)

    assert saver.claims == []


async def test_a_run_does_not_hurry_ahead_of_its_reader_without_bound() -> None:
    runs = Runs()
    builder = chain(["a"], {"a": runs.counted("a", returns({"x": 1}))}).add_edge("a", "a")
    stream = builder.compile().astream({}, {"recursion_limit": 10_000})
    await anext(stream)
    for _ in range(1000):
        await asyncio.sleep(0)

    assert BUFFER_SIZE <= runs.of["a"] <= 2 * BUFFER_SIZE + 1
    await left_to_close(stream).aclose()


# Resuming


async def test_a_resumed_run_first_tells_the_values_and_the_updates_that_are_stored() -> None:
    broken: list[Exception] = [ValueError("boom")]

    async def fails_once(state: Log) -> Any:
        if broken:
            for _ in range(5):
                await asyncio.sleep(0)
            raise broken.pop()
        return {"log": ["b"]}

    graph = fan(["a", "b"], {"b": fails_once}).compile(checkpointer=WatchedSaver())
    with pytest.raises(ValueError, match="boom"):
        await graph.ainvoke({"x": 1}, thread())

    assert await events(graph, None, thread(), stream_mode=["updates", "values"]) == [
        ("values", {"log": [], "x": 1}),
        ("updates", {"a": {"log": ["a"]}, "__metadata__": {"cached": True}}),
        ("updates", {"b": {"log": ["b"]}}),
        ("values", {"log": ["a", "b"], "x": 1}),
    ]


async def test_a_thread_with_nothing_left_to_do_tells_its_values_once() -> None:
    graph = chain(["a"]).compile(checkpointer=WatchedSaver())
    await graph.ainvoke({}, thread())

    assert await events(graph, None, thread(), stream_mode="values") == [{"log": ["a"]}]
    assert await events(graph, None, thread()) == []


# Sync durability


async def test_in_sync_values_are_told_only_after_their_commit_was_acknowledged() -> None:
    saver = WatchedSaver()
    graph = chain(["a", "b"]).compile(checkpointer=saver)
    brake = Brake(saver)
    told: list[Any] = []

    async def read() -> None:
        async for event in graph.astream({"x": 1}, thread(), stream_mode="values", durability="sync"):
            told.append(event)  # noqa: PERF401

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        await brake.held.wait()
        for _ in range(20):
            await asyncio.sleep(0)
        assert told == [{"log": [], "x": 1}], "the input, which the claim has recorded"
        assert saver.acknowledged == []
        brake.released.set()

    assert [event["log"] for event in told] == [[], ["a"], ["a", "b"]]


async def test_in_sync_every_superstep_is_acknowledged_before_its_values_are_told() -> None:
    saver = WatchedSaver()
    graph = chain(["a", "b", "c"]).compile(checkpointer=saver)
    async for event in graph.astream({}, thread(), stream_mode="values", durability="sync"):
        if event["log"]:
            assert saver.steps()[-1] >= len(event["log"])


# Leaving


async def read_and_fail(stream: AsyncGenerator[Any, None], gate: Gate) -> None:
    async with contextlib.aclosing(stream):
        async for _ in stream:
            await gate.entered.wait()
            raise ZeroDivisionError


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
class TestLeaving:
    """A reader leaves while a node runs: it is cancelled, its clean-up awaited, and nothing is left."""

    def graph(self, gate: Gate, width: int) -> Pregel:
        names = ["gate", "sibling"][:width]
        builder = fan(["first"])
        for name in names:
            builder.add_node(name, gate if name == "gate" else logs(name)).add_edge("first", name)
        return builder.compile(checkpointer=WatchedSaver())

    async def check(self, gate: Gate, graph: Pregel, width: int) -> None:
        assert (gate.cancelled, gate.ended) == (1, 0)
        assert gate.cleaned.is_set()
        assert asyncio.all_tasks() == {current_task()}
        snapshot = await graph.aget_state(thread())
        assert snapshot.next == ("gate",)
        assert snapshot.values["log"] == ["first", "sibling"][:width]
        gate.open.set()
        await graph.ainvoke(None, thread())

    async def test_by_break_and_close(self, width: int, durability: Durability) -> None:
        gate = Gate()
        graph = self.graph(gate, width)
        async with contextlib.aclosing(
            left_to_close(graph.astream({}, thread(), durability=durability))
        ) as stream:
            async for _ in stream:
                await gate.entered.wait()
                break
        await self.check(gate, graph, width)

    async def test_by_break_and_garbage_collection(self, width: int, durability: Durability) -> None:
        gate = Gate()
        graph = self.graph(gate, width)
        async for _ in graph.astream({}, thread(), durability=durability):
            await gate.entered.wait()
            break
        gc.collect()
        while others := asyncio.all_tasks() - {current_task()}:
            await asyncio.wait(others)
        await self.check(gate, graph, width)

    async def test_by_another_task(self, width: int, durability: Durability) -> None:
        gate = Gate()
        graph = self.graph(gate, width)
        stream = left_to_close(graph.astream({}, thread(), durability=durability))
        await anext(stream)
        await gate.entered.wait()
        await asyncio.create_task(stream.aclose())
        await self.check(gate, graph, width)

    async def test_by_an_error_of_the_reader(self, width: int, durability: Durability) -> None:
        gate = Gate()
        graph = self.graph(gate, width)
        stream = left_to_close(graph.astream({}, thread(), durability=durability))
        with pytest.raises(ZeroDivisionError):
            await read_and_fail(stream, gate)
        await self.check(gate, graph, width)

    async def test_by_cancelling_the_reader(self, width: int, durability: Durability) -> None:
        gate = Gate()
        graph = self.graph(gate, width)

        async def read() -> None:
            async for _ in graph.astream({}, thread(), durability=durability):
                pass

        reader = asyncio.create_task(read())
        await gate.entered.wait()
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        await self.check(gate, graph, width)

    async def test_by_cancelling_the_reader_twice(self, width: int, durability: Durability) -> None:
        gate = Gate()
        graph = self.graph(gate, width)

        async def read() -> None:
            async for _ in graph.astream({}, thread(), durability=durability):
                pass

        reader = asyncio.create_task(read())
        await gate.entered.wait()
        reader.cancel()
        await gate.stopping.wait()
        assert not gate.cleaned.is_set()
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        await self.check(gate, graph, width)

    async def test_by_a_cancel_scope_around_the_reading(self, width: int, durability: Durability) -> None:
        gate = Gate()
        graph = self.graph(gate, width)
        stream = left_to_close(graph.astream({}, thread(), durability=durability))
        with anyio.CancelScope() as scope:
            async with contextlib.aclosing(stream):
                async for _ in stream:
                    await gate.entered.wait()
                    scope.cancel()
        assert scope.cancelled_caught
        await self.check(gate, graph, width)


async def test_a_stream_that_was_never_read_leaves_nothing() -> None:
    gate = Gate()
    stream = left_to_close(chain(["gate"], {"gate": gate}).compile().astream({}))
    await stream.aclose()

    assert not gate.entered.is_set()
    assert len(asyncio.all_tasks()) == 1


async def test_a_child_graph_that_is_streamed_in_a_node_ends_with_it() -> None:
    gate = Gate()
    child = chain(["first", "gate"], {"gate": gate}).compile()

    async def reads(state: Log) -> Any:
        return [event async for event in child.astream({})]

    run = asyncio.create_task(StateGraph(Log).add_node("a", reads).add_edge(START, "a").compile().ainvoke({}))
    await gate.entered.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    assert gate.cleaned.is_set()
    assert len(asyncio.all_tasks()) == 1


async def test_a_broken_saver_ends_the_stream_with_its_error() -> None:
    saver = WatchedSaver()

    async def breaks(commit: Commit) -> None:
        raise ConnectionError("gone")

    saver.before_commit = breaks
    with pytest.raises(ConnectionError, match="gone"):
        await events(chain(["a", "b"]).compile(checkpointer=saver), {}, thread())

    assert len(asyncio.all_tasks()) == 1
