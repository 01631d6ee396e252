"""The sync face: calls from threads that run no loop, below sync nodes, at once, on loops that are gone."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from perdure.aio import portal
from perdure.cache.memory import InMemoryCache
from perdure.checkpoint.memory import InMemorySaver
from perdure.data import Command, Send
from perdure.errors import EmptyInputError, GraphValidationError, SyncCallError
from perdure.pregel.graph import Pregel
from tests.unit.pregel.graphs import Gate, Log, chain, fails, logs, returns, settle, thread
from tests.unit.pregel.savers import WatchedSaver


def sync_node(name: str) -> Any:
    def body(state: Log) -> Any:
        return {"log": [name]}

    return body


def elsewhere(call: Callable[[], Any]) -> Any:
    """Make a call in a thread of its own, and wait for it without holding up anything."""
    return asyncio.to_thread(call)


# From threads that run no loop


def test_every_sync_method_does_what_its_async_one_does() -> None:
    graph = chain(["a", "b"], {"b": sync_node("b")}).compile(checkpointer=InMemorySaver())

    assert graph.invoke({"log": ["given"]}, thread()) == {"log": ["given", "a", "b"]}
    assert graph.get_state(thread()).values == {"log": ["given", "a", "b"]}
    assert list(graph.stream({}, thread("u"), stream_mode="updates")) == [
        {"a": {"log": ["a"]}},
        {"b": {"log": ["b"]}},
    ]
    assert graph.batch([{}, {"x": 1}], [thread("v"), thread("w")]) == [
        {"log": ["a", "b"]},
        {"log": ["a", "b"], "x": 1},
    ]


def test_sync_methods_are_named_and_described_as_such() -> None:
    cls: Any = Pregel
    assert cls.invoke.__name__ == "invoke"
    assert cls.stream.__qualname__ == "Pregel.stream"
    assert "`ainvoke`" in cls.invoke.__doc__


@pytest.mark.parametrize("error", [ValueError("boom"), SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_what_a_run_raises_is_raised_and_the_next_call_works(error: BaseException) -> None:
    with pytest.raises(type(error)) as raised:
        chain(["a"], {"a": fails(error)}).compile().invoke({})

    assert raised.value is error
    assert chain(["a"]).compile().invoke({}) == {"log": ["a"]}


def test_what_cannot_be_called_is_refused_as_ever() -> None:
    with pytest.raises(EmptyInputError):
        chain(["a"]).compile().invoke(None)
    with pytest.raises(GraphValidationError, match="Cannot clear cache"):
        chain(["a"]).compile().clear_cache()
    with pytest.raises(GraphValidationError, match="Unknown stream_mode"):
        chain(["a"]).compile().stream({}, stream_mode="all")  # type: ignore[arg-type]


def test_four_threads_at_once_neither_hang_nor_spoil_the_face() -> None:
    graph = chain(["a", "b"], {"b": sync_node("b")}).compile(checkpointer=InMemorySaver())

    def run(number: int) -> Any:
        return [graph.invoke({}, thread(f"{number}-{turn}")) for turn in range(10)]

    with ThreadPoolExecutor(4) as executor:
        results = list(executor.map(run, range(4)))

    assert results == [[{"log": ["a", "b"]}] * 10] * 4


def test_a_stream_that_is_left_stops_its_run() -> None:
    gate = Gate()
    graph = chain(["a", "b"], {"b": gate}).compile()
    events = graph.stream({})
    assert next(events) == {"a": {"log": ["a"]}}
    events.close()  # type: ignore[attr-defined]  # a generator

    assert gate.entered.is_set() == (gate.cancelled == 1)
    assert list(chain(["a"]).compile().stream({})) == [{"a": {"log": ["a"]}}]


def test_a_forked_process_has_a_face_of_its_own() -> None:
    graph = chain(["a"]).compile()
    graph.invoke({})
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, str(graph.invoke({})).encode())
        os._exit(0)
    os.waitpid(child, 0)

    assert os.read(reader, 100) == b"{'log': ['a']}"


def test_a_process_that_is_forked_in_a_sync_node_does_not_call_on_the_loop_of_its_parent() -> None:
    reader, writer = os.pipe()

    def forks(state: Log) -> Any:
        child = os.fork()
        if child == 0:
            signal.alarm(30)  # hanging, it would keep the test
            os.write(writer, str(chain(["a"]).compile().invoke({})).encode())
            os._exit(0)
        os.waitpid(child, 0)

    chain(["forks"], {"forks": forks}).compile().invoke({})
    os.close(writer)

    assert os.read(reader, 100) == b"{'log': ['a']}"


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_a_stream_whose_node_ends_the_program_does_not_end_the_loop(error: BaseException) -> None:
    loops: list[Any] = []

    async def node(state: Log) -> None:
        loops.append(asyncio.get_running_loop())

    with pytest.raises(type(error)) as raised:
        list(chain(["a", "b"], {"a": node, "b": fails(error)}).compile().stream({}))
    chain(["a"], {"a": node}).compile().invoke({})

    assert raised.value is error
    assert loops[0] is loops[1]


def interrupts(cleaned: threading.Event) -> Any:
    """Interrupt the main thread, as Ctrl-C does, and take a while to clean up."""

    async def node(state: Log) -> None:
        try:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            await asyncio.get_running_loop().create_future()
        finally:
            for _ in range(20):
                await anyio.lowlevel.checkpoint()
            cleaned.set()

    return node


def test_who_is_interrupted_while_it_waits_goes_on_when_the_run_has_ended() -> None:
    cleaned = threading.Event()
    graph = chain(["a"], {"a": interrupts(cleaned)}).compile()
    with pytest.raises(KeyboardInterrupt):
        graph.invoke({})
    assert cleaned.is_set()

    cleaned.clear()
    with pytest.raises(KeyboardInterrupt):
        list(graph.stream({}))
    assert cleaned.is_set()


def test_an_error_goes_with_the_last_who_holds_it() -> None:
    graph = chain(["a"]).compile()

    def failed() -> weakref.ref[GraphValidationError]:
        try:
            graph.get_state(thread())
        except GraphValidationError as error:
            return weakref.ref(error)
        raise AssertionError

    gc.collect()
    gc.disable()
    try:
        gone = failed()
        graph.invoke({})  # before that, the loop has let go of the call
        assert gone() is None
    finally:
        gc.enable()


# Where a loop runs


async def test_on_the_thread_of_a_loop_a_sync_method_names_the_async_one() -> None:
    graph = chain(["a"]).compile()
    with pytest.raises(SyncCallError, match=r"`invoke` was called where an event loop runs.*use `ainvoke`"):
        graph.invoke({})
    with pytest.raises(SyncCallError, match="use `astream`"):
        graph.stream({})


async def test_a_stream_that_is_forgotten_is_closed_by_whoever_finds_it() -> None:
    gate = Gate()
    graph = chain(["a", "b"], {"b": gate}).compile()

    def begin() -> Any:
        events = graph.stream({})
        next(events)
        return events

    events = await elsewhere(begin)
    del events
    for _ in range(50):
        await anyio.sleep(0.002)
        if not gate.entered.is_set() or gate.cancelled:
            break

    assert not gate.entered.is_set() or gate.cancelled == 1


# Below a sync node


async def test_a_sync_node_runs_a_graph_on_its_own_loop_as_part_of_its_run() -> None:
    loops: list[Any] = []

    async def inner(state: Log) -> Any:
        loops.append(asyncio.get_running_loop())
        return {"log": ["inner"]}

    child = chain(["inner"], {"inner": inner}).compile()

    def outer(state: Log) -> Any:
        return child.invoke({}) if not state["log"] else None

    saver = WatchedSaver()
    graph = chain(["outer"], {"outer": outer}).compile(checkpointer=saver)

    assert await graph.ainvoke({}, thread()) == {"log": ["inner"]}
    assert loops == [asyncio.get_running_loop()]
    assert {row.ns.partition(":")[0] for commit in saver.sent for row in commit.checkpoints} == {
        "",
        "outer",
    }


async def test_sync_nodes_100_wide_that_each_run_a_graph_with_a_sync_node_do_not_hang() -> None:
    child = chain(["inner"], {"inner": sync_node("inner")}).compile()

    def outer(number: int) -> Any:
        return child.invoke({})

    builder = chain(["a"], {"a": returns([Send("b", i) for i in range(100)])}).add_node("b", outer)
    with anyio.fail_after(30):
        assert (await builder.compile().ainvoke({}))["log"] == ["inner"] * 100


async def test_a_command_for_the_parent_passes_through_a_sync_node() -> None:
    child = chain(["a"], {"a": returns(Command(graph=Command.PARENT, update={"x": 1}))}).compile()
    graph = chain(["outer"], {"outer": lambda state: child.invoke({})}).compile()

    assert (await graph.ainvoke({}))["x"] == 1


async def test_what_a_sync_node_began_ends_with_the_node() -> None:
    gate = Gate()
    child = chain(["inner", "after"], {"inner": gate}).compile()
    graph = chain(["outer"], {"outer": lambda state: child.invoke({})}).compile()
    run = asyncio.create_task(graph.ainvoke({}))
    await gate.entered.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    assert gate.cancelled == 1
    assert gate.cleaned.is_set()


async def test_a_call_that_is_cancelled_before_its_first_step_does_not_keep_the_node() -> None:
    entered, called, seen = threading.Event(), threading.Event(), list[BaseException]()
    gate = Gate()
    child = chain(["inner"], {"inner": gate}).compile()

    def outer(state: Log) -> Any:
        entered.set()
        called.wait(30)
        try:
            child.invoke({})
        except BaseException as error:
            seen.append(error)
            raise

    run = asyncio.create_task(chain(["outer"], {"outer": outer}).compile().ainvoke({}))
    await asyncio.to_thread(entered.wait, 30)
    loop = asyncio.get_running_loop()
    tell = loop.call_soon_threadsafe

    def telling(callback: Any, *args: Any, **options: Any) -> Any:
        def begins() -> None:
            run.cancel()
            callback(*args)

        loop.call_soon_threadsafe = tell  # type: ignore[method-assign]
        return tell(begins, **options)

    loop.call_soon_threadsafe = telling  # type: ignore[method-assign,assignment]
    called.set()
    with anyio.fail_after(30), pytest.raises(asyncio.CancelledError):
        await run

    assert [type(error) for error in seen] == [asyncio.CancelledError]
    assert not gate.entered.is_set()


async def test_a_stream_that_a_cancelled_node_holds_ends_with_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("perdure.aio.threads.THREAD_SECONDS", 0.05)
    gate, leave = Gate(), threading.Event()
    child = chain(["a", "b"], {"b": gate}).compile()

    def outer(state: Log) -> Any:
        events = child.stream({})
        next(events)
        leave.wait(30)

    run = asyncio.create_task(chain(["outer"], {"outer": outer}).compile().ainvoke({}))
    await gate.entered.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    assert gate.cancelled == 1
    leave.set()


# Savers that live on a loop


class Homed(InMemorySaver):
    """A saver with connections that live on one loop."""

    def __init__(self, home: Any) -> None:
        super().__init__()
        self.home = home


async def test_a_call_is_made_on_the_loop_that_the_saver_lives_on() -> None:
    loops: list[Any] = []

    async def node(state: Log) -> Any:
        loops.append(asyncio.get_running_loop())

    here = asyncio.get_running_loop()
    graph = chain(["a"], {"a": node}).compile(checkpointer=Homed(here))
    await elsewhere(lambda: graph.invoke({}, thread()))

    assert loops == [here]


async def test_a_call_is_made_on_the_loop_that_the_cache_lives_on() -> None:
    class HomedCache(InMemoryCache):
        home = asyncio.get_running_loop()

    loops: list[Any] = []

    async def node(state: Log) -> Any:
        loops.append(asyncio.get_running_loop())

    graph = chain(["a"], {"a": node}).compile(cache=HomedCache())
    await elsewhere(lambda: graph.invoke({}))

    assert loops == [asyncio.get_running_loop()]


@pytest.mark.parametrize("homed", [True, False])
async def test_a_thread_of_an_async_node_calls_on_the_loop_of_the_run(homed: bool) -> None:
    loops: list[Any] = []

    async def node(state: Log) -> Any:
        loops.append(asyncio.get_running_loop())

    here = asyncio.get_running_loop()
    child = chain(["a"], {"a": node}).compile()

    async def calls(state: Log) -> Any:
        return await asyncio.to_thread(child.invoke, {})

    saver = Homed(here) if homed else InMemorySaver()
    await chain(["calls"], {"calls": calls}).compile(checkpointer=saver).ainvoke({}, thread())

    assert loops == [here]


async def test_below_a_sync_node_a_saver_of_its_own_is_used_on_its_loop() -> None:
    loops: list[Any] = []

    async def node(state: Log) -> Any:
        loops.append(asyncio.get_running_loop())

    here = asyncio.get_running_loop()
    child = chain(["a", "b"], {"a": node, "b": node}).compile(checkpointer=Homed(here))

    def calls(state: Log) -> Any:
        child.invoke({}, thread())
        return list(child.stream({}, thread("u")))[-1]["b"]

    graph = chain(["calls"], {"calls": calls}).compile()
    await elsewhere(lambda: graph.invoke({}))

    assert loops == [here] * 4


def test_a_loop_that_is_closed_while_calls_wait_refuses_them_and_lets_streams_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(portal, "LOOK_SECONDS", 0.01)
    loop = asyncio.new_event_loop()
    server = threading.Thread(target=loop.run_forever)
    server.start()

    async def stops(state: Log) -> Any:
        await settle()  # a coroutine that has not begun when its loop ends would be warned of in a later test
        loop.stop()
        await loop.create_future()

    events = chain(["a", "b"]).compile(checkpointer=Homed(loop)).stream({}, thread())
    next(events)
    graph = chain(["a"], {"a": stops}).compile(checkpointer=Homed(loop))
    result = portal._result

    def closing(*args: Any) -> Any:
        server.join()
        loop.close()
        return result(*args)

    monkeypatch.setattr(portal, "_result", closing)
    with pytest.raises(SyncCallError, match="has stopped"):
        graph.invoke({}, thread("u"))
    events.close()  # type: ignore[attr-defined]  # a generator


def test_a_saver_whose_loop_is_gone_is_refused() -> None:
    loop = asyncio.new_event_loop()
    graph = chain(["a"]).compile(checkpointer=Homed(loop))
    loop.close()

    with pytest.raises(SyncCallError, match="`invoke` belongs to an event loop that has stopped"):
        graph.invoke({}, thread())


def test_a_saver_whose_loop_stops_meanwhile_does_not_keep_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portal, "LOOK_SECONDS", 0.01)
    loop = asyncio.new_event_loop()
    graph = chain(["a"], {"a": logs("a")}).compile(checkpointer=Homed(loop))
    with pytest.raises(SyncCallError, match="has stopped"):  # it never ran
        graph.invoke({}, thread())
    loop.close()


def test_an_interrupted_caller_leaves_no_run_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    entered, ended = threading.Event(), threading.Event()

    async def node(state: Log) -> Any:
        entered.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()

    def interrupted(*_: Any) -> Any:
        entered.wait(30)
        raise KeyboardInterrupt

    monkeypatch.setattr(portal, "_result", interrupted)
    with pytest.raises(KeyboardInterrupt):
        chain(["a"], {"a": node}).compile().invoke({})

    assert ended.wait(30)
