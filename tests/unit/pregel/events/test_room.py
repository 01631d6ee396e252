"""Room inside a superstep: threads wait for readers, async bodies flush, ends wait, and no event is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, cast

import anyio
import pytest

from perdure.constants import NO_WRITES, START
from perdure.data import RetryPolicy, Send
from perdure.errors import StreamOverflowError
from perdure.graph.state import StateGraph
from perdure.pregel.events.buffer import BUFFER_SIZE, MOST_UNREAD, Buffer, Event
from perdure.pregel.graph import Pregel
from perdure.pregel.plan.plan import Policies
from perdure.pregel.step.namespace import ROOT_NAMESPACE
from perdure.runtime import Runtime, get_runtime, get_stream_writer
from tests.unit.pregel.following import Followed, read
from tests.unit.pregel.graphs import (
    Action,
    Gate,
    Log,
    Runs,
    chain,
    fan,
    returns,
    settle,
    thread,
    with_policies,
)
from tests.unit.pregel.savers import WatchedSaver

MANY = 20 * BUFFER_SIZE


def writes(count: int) -> Action:
    """Make a body that puts events without awaiting anything."""

    async def body(state: Any) -> None:
        write = get_stream_writer()
        for number in range(count):
            write(number)

    return body


def node(action: Callable[..., Any]) -> Pregel:
    return StateGraph(Log).add_node("a", action).add_edge(START, "a").compile()


async def custom(graph: Pregel, **more: Any) -> list[Any]:
    return [event async for event in graph.astream({}, stream_mode="custom", **more)]


# Threads


def put_many(write: Callable[[Any], None], name: str = "") -> None:
    for number in range(MANY):
        write((name, number))


def sync_node(state: Log) -> None:
    put_many(get_stream_writer())


async def helper_thread(state: Log) -> None:
    runtime = get_runtime()
    await asyncio.to_thread(runtime.in_thread(lambda: put_many(get_stream_writer())))


async def plain_thread(state: Log, runtime: Runtime[Any]) -> None:
    await asyncio.to_thread(put_many, runtime.stream_writer)


async def several_threads(state: Log, runtime: Runtime[Any]) -> None:
    async with anyio.create_task_group() as group:
        for name in "abc":
            group.start_soon(asyncio.to_thread, put_many, runtime.stream_writer, name)


@pytest.mark.parametrize(
    ("action", "threads"), [(sync_node, 1), (helper_thread, 1), (plain_thread, 1), (several_threads, 3)]
)
async def test_writers_in_threads_wait_for_room(action: Callable[..., Any], threads: int) -> None:
    run = Followed(node(action))
    reader = run.reader("custom")
    ending = asyncio.create_task(run.run())
    told: list[Any] = []
    while batch := await reader.batch():
        assert len(batch) < BUFFER_SIZE + threads, "each thread may find the same room"
        told.extend(batch)
        await settle(3)
    await ending

    for name in {name for name, _ in told}:
        assert [number for other, number in told if other == name] == list(range(MANY))
    assert len(told) == threads * MANY


class Writing:
    """A sync node that fills the buffer, and tells when it is about to wait for room."""

    def __init__(self, count: int = MANY) -> None:
        self.full = threading.Event()
        self.ended = threading.Event()
        self.count = count

    def __call__(self, state: Log) -> None:
        write = get_stream_writer()
        for number in range(self.count):
            if number == BUFFER_SIZE:
                self.full.set()
            write(number)
        self.ended.set()

    async def is_full(self) -> None:
        await asyncio.to_thread(self.full.wait)


async def test_a_thread_that_waits_is_let_go_when_the_reader_leaves() -> None:
    writing = Writing()
    async with aclosing(cast("Any", node(writing).astream({}, stream_mode="custom"))) as stream:
        await anext(stream)
        await writing.is_full()

    assert writing.ended.is_set(), "closing waits for the thread, which waits no more"


async def test_a_thread_that_waits_is_let_go_when_the_run_is_cancelled() -> None:
    writing = Writing()

    async def reading() -> None:
        async for _ in node(writing).astream({}, stream_mode="custom"):
            await anyio.sleep_forever()

    reader = asyncio.create_task(reading())
    await writing.is_full()
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others)  # an iterator that is left open is closed in a task of the loop's own

    assert writing.ended.is_set()


def test_a_thread_that_waits_is_let_go_when_the_loop_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.aio.bell.LOOK_SECONDS", 0.01)
    writing = Writing(3 * BUFFER_SIZE)
    helpers: list[threading.Thread] = []

    async def starts(state: Log) -> None:
        helpers.append(threading.Thread(target=get_runtime().in_thread(writing), args=(state,)))
        helpers[0].start()
        await anyio.sleep_forever()

    stream = cast("Any", node(starts).astream({}, stream_mode="custom"))
    loop = asyncio.new_event_loop()
    loop.run_until_complete(anext(stream))
    writing.full.wait()
    helpers[0].join()  # the loop stands still, and nobody takes an event

    assert writing.ended.is_set()
    loop.run_until_complete(stream.aclose())
    loop.close()


async def test_a_thread_that_goes_on_when_nobody_reads_fills_no_memory() -> None:
    buffer = Buffer()
    buffer.reader("custom")
    buffer.close()

    def goes_on() -> None:
        for number in range(10):
            buffer.wait_for_room()
            buffer.put(Event(ROOT_NAMESPACE, "custom", number))

    await asyncio.to_thread(goes_on)

    assert buffer.after(0) == []


def test_a_sync_reader_of_a_sync_node_gets_every_event() -> None:
    assert [number for _, number in node(sync_node).stream({}, stream_mode="custom")] == list(range(MANY))


async def test_a_graph_in_an_event_loop_of_its_own_below_a_node_waits_for_room_as_well() -> None:
    child = chain(["x"], {"x": flushes(MANY)}).compile()

    def own_loop(state: Log) -> None:
        asyncio.run(child.ainvoke({}))

    assert [event for _, event in await custom(node(own_loop), subgraphs=True)] == list(range(MANY))


# Flush


def flushes(count: int, every: int = 1) -> Action:
    """Make a body that lets readers take its events."""

    async def body(state: Any) -> None:
        runtime = get_runtime()
        for number in range(count):
            if number % every == 0:
                await runtime.flush()
            runtime.stream_writer(number)

    return body


async def test_flush_waits_until_there_is_room() -> None:
    passed = anyio.Event()

    async def body(state: Any) -> None:
        await writes(BUFFER_SIZE - 1)(state)
        await get_runtime().flush()  # there is still room for one
        get_stream_writer()("the last")
        await get_runtime().flush()
        passed.set()

    run = Followed(node(body))
    reader = run.reader("custom")
    ending = asyncio.create_task(run.run())
    await settle()
    assert not passed.is_set()
    assert len(await reader.batch()) == BUFFER_SIZE
    await passed.wait()
    await ending


async def test_several_bodies_may_wait_for_room_at_once() -> None:
    names = [f"n{i}" for i in range(10)]
    told = await custom(fan(names, dict.fromkeys(names, flushes(BUFFER_SIZE))).compile())

    assert sorted(told) == sorted([*range(BUFFER_SIZE)] * len(names))


async def test_flush_waits_for_nobody_where_nobody_reads() -> None:
    await node(flushes(10 * BUFFER_SIZE)).ainvoke({})


async def test_a_body_that_flushes_may_put_a_hundred_thousand_events() -> None:
    assert await custom(node(flushes(100_000, every=MOST_UNREAD))) == list(range(100_000))


# The end of a body


async def test_a_bodys_end_waits_for_room_but_its_outcome_is_stored_before() -> None:
    saver, runs = WatchedSaver(), Runs()
    gate = Gate()
    actions: dict[str, Action] = {"a": writes(BUFFER_SIZE), "b": gate, "c": runs.counted("c")}
    graph = fan("abc", actions).compile(checkpointer=saver)
    run = Followed(graph, config=thread(max_concurrency=2))
    reader = run.reader("custom")
    ending = asyncio.create_task(run.run())
    await settle()

    stored = [row.channel for commit in saver.acknowledged for row in commit.writes]
    assert stored[-1] == NO_WRITES, "node a has written nothing, which is an outcome like others"
    assert runs.of == {}, "its place is not free for c before a reader has taken its events"
    assert len(await reader.batch()) == BUFFER_SIZE
    await settle()
    assert runs.of == {"c": 1}
    gate.open.set()
    await ending


async def test_a_failure_does_not_wait_for_room() -> None:
    async def fails(state: Any) -> None:
        await writes(2 * BUFFER_SIZE)(state)
        raise ValueError("boom")

    run = Followed(fan("ab", {"a": fails, "b": Gate()}).compile())
    run.reader("custom")
    with pytest.raises(ValueError, match="boom"):
        await run.run()


async def test_a_sibling_whose_end_waits_for_room_is_kept_when_another_fails() -> None:
    saver, gate = WatchedSaver(), Gate()

    async def fails(state: Any) -> None:
        await gate.open.wait()
        raise ValueError("boom")

    graph = fan("ab", {"a": writes(BUFFER_SIZE), "b": fails}).compile(checkpointer=saver)
    run = Followed(graph, config=thread())
    run.reader("custom")
    ending = asyncio.create_task(run.run())
    await settle()
    gate.open.set()
    with pytest.raises(ValueError, match="boom"):
        await ending

    assert (await graph.aget_state(thread())).next == ("b",)


# Too many


def overflowing(name: str, most: int) -> str:
    return (
        f"Node '{name}' put more than {most} events into the stream without letting anybody read them. `await"
    )


@pytest.mark.parametrize("most", [100, MOST_UNREAD])
@pytest.mark.parametrize("names", ["a", "ab"], ids=["width 1", "width 2"])
async def test_a_body_that_puts_one_event_too_many_without_awaiting_fails(names: str, most: int) -> None:
    graph = fan(names, {"a": writes(most + 1)}).compile()
    assert graph.most_unread == MOST_UNREAD
    graph.most_unread = most
    told: list[Any] = []
    run = Followed(graph)
    reader = run.reader("custom")
    with pytest.raises(StreamOverflowError, match=overflowing("a", most)):
        await run.run()
    await read(reader, told)

    assert told == list(range(most)), "what it put before is not lost"


async def test_a_body_may_put_as_many_as_are_allowed() -> None:
    graph = chain("ab", {"a": writes(100), "b": writes(100)}).compile()
    graph.most_unread = 100

    assert await custom(graph) == [*range(100)] * 2


async def test_a_body_that_awaits_anything_while_a_reader_takes_events_may_go_on() -> None:
    async def body(state: Any) -> None:
        for _ in range(10):
            await writes(10)(state)
            await settle(5)

    graph = node(body)
    graph.most_unread = 19

    assert len(await custom(graph)) == 100


async def test_bodies_that_run_side_by_side_are_counted_apart() -> None:
    sends = [Send("b", {}) for _ in range(5)]
    graph = chain("a", {"a": returns(sends)}).add_node("b", writes(10)).compile()
    graph.most_unread = 10

    assert len(await custom(graph)) == 50


async def test_another_attempt_is_counted_anew() -> None:
    failing: list[Exception] = [ConnectionError("once")]

    async def body(state: Any) -> None:
        await writes(8)(state)
        if failing:
            raise failing.pop()

    policies = Policies(retry=(RetryPolicy(initial_interval=0, jitter=False),))
    graph = with_policies(node(body), {"a": policies})
    graph.most_unread = 10
    run = Followed(graph)
    told: list[Any] = []
    reader = run.reader("custom")
    await run.run()
    await read(reader, told)

    assert told == [*range(8)] * 2


async def test_the_error_names_the_node_of_the_child_graph() -> None:
    child = chain(["x"], {"x": writes(11)}).compile()
    graph = chain(["a"], {"a": child.ainvoke}).compile()
    graph.most_unread = 10
    with pytest.raises(StreamOverflowError, match=overflowing("x", 10)):
        await custom(graph, subgraphs=True)


async def test_a_streamed_graph_may_not_put_too_much_before_the_reader_around_it_either() -> None:
    async def body(state: Any) -> None:
        for _ in range(100):
            await writes(1)(state)
            await settle(5)  # enough for the inner reader

    child = chain(["x"], {"x": body}).compile()
    inner: list[Any] = []

    async def streams(state: Any) -> None:
        inner.extend(await custom(child))

    graph = node(streams)
    graph.most_unread = 50
    run = Followed(graph)
    run.reader("custom", subgraphs=True)
    with pytest.raises(StreamOverflowError, match=overflowing("x", 50)):
        await run.run()


async def test_a_streamed_graph_may_put_any_number_that_the_reader_around_it_does_not_ask_for() -> None:
    child = chain(["x"], {"x": flushes(100)}).compile()
    inner: list[Any] = []

    async def streams(state: Any) -> None:
        inner.extend(await custom(child))

    graph = node(streams)
    graph.most_unread = 50
    run = Followed(graph)
    run.reader("updates")
    await run.run()

    assert inner == list(range(100))
