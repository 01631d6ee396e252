"""Room inside a superstep: threads wait for readers, async bodies flush, ends wait, and no event is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import aclosing
from typing import Any, cast

import anyio
import pytest

from perdure.constants import NO_WRITES
from perdure.pregel.events.buffer import BUFFER_SIZE, MOST_UNREAD, Buffer
from perdure.pregel.step.namespace import ROOT_NAMESPACE
from perdure.runtime import Runtime, get_runtime, get_stream_writer
from tests.unit.pregel.following import Followed, custom, flushes, node, writes
from tests.unit.pregel.graphs import (
    Action,
    Gate,
    Log,
    Runs,
    chain,
    fan,
    settle,
    thread,
)
from tests.unit.pregel.savers import WatchedSaver

MANY = 20 * BUFFER_SIZE


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
            buffer.put((ROOT_NAMESPACE, "custom", number))

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
