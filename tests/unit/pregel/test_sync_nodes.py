"""Sync nodes: each in a thread, with its own context; one that is cancelled is waited for, not for ever."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any, cast

import anyio
import anyio.from_thread
import anyio.lowlevel
import pytest

from perdure.constants import START
from perdure.data import Command, Send
from perdure.graph.state import StateGraph
from tests.unit.pregel.graphs import Action, Log, chain, fan, logs, returns

setting: contextvars.ContextVar[str] = contextvars.ContextVar("setting", default="unset")


async def test_a_sync_node_runs_in_a_thread_with_a_copy_of_the_context() -> None:
    seen: list[Any] = []

    def body(state: Log) -> Any:
        seen.append((threading.current_thread() is threading.main_thread(), setting.get()))
        setting.set("set in the thread")
        return {"log": ["a"]}

    setting.set("the caller's")
    assert (await chain(["a", "b"], {"a": body}).compile().ainvoke({}))["log"] == ["a", "b"]
    assert seen == [(False, "the caller's")]
    assert setting.get() == "the caller's"


async def test_more_sync_nodes_than_threads_all_run() -> None:
    def body(number: int) -> Any:
        return {"log": [str(number)]}

    builder = chain(["a"], {"a": returns([Send("b", i) for i in range(150)])}).add_node("b", body)

    assert (await builder.compile().ainvoke({}))["log"] == [str(i) for i in range(150)]


async def test_sync_nodes_that_each_run_a_graph_with_a_sync_node_do_not_wait_for_each_other() -> None:
    def inner(state: Log) -> Any:
        return {"log": ["inner"]}

    child = chain(["inner"], {"inner": inner}).compile()

    token = anyio.lowlevel.current_token()

    def outer(number: int) -> Any:
        return anyio.from_thread.run(child.ainvoke, {}, token=token)

    builder = chain(["a"], {"a": returns([Send("b", i) for i in range(100)])}).add_node("b", outer)
    with anyio.fail_after(30):
        result = await builder.compile().ainvoke({})

    assert result["log"] == ["inner"] * 100


async def test_a_sync_nodes_error_is_its_own() -> None:
    def body(state: Log) -> Any:
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom") as raised:
        await chain(["a"], {"a": body}).compile().ainvoke({})

    assert raised.value.__notes__[0].startswith("During task with name 'a'")


class Held:
    """A sync node that tells when it was entered, and returns when it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.leave = threading.Event()
        self.returned = False

    def __call__(self, state: Log) -> None:
        self.entered.set()
        self.leave.wait(30)
        self.returned = True


@pytest.mark.parametrize("names", [["a"], ["a", "b"]], ids=["width 1", "width 2"])
async def test_a_cancelled_sync_node_is_waited_for(
    names: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    body = Held()
    run = asyncio.create_task(fan(names, {"a": cast("Action", body)}).compile().ainvoke({}))
    await asyncio.to_thread(body.entered.wait, 30)
    run.cancel()
    for _ in range(50):
        await anyio.lowlevel.checkpoint()
    assert not run.done()
    body.leave.set()
    with pytest.raises(asyncio.CancelledError):
        await run

    assert body.returned
    assert caplog.text == ""


@pytest.mark.parametrize("names", [["a"], ["a", "b"]], ids=["width 1", "width 2"])
async def test_a_cancelled_sync_node_that_does_not_return_is_left_alone_with_a_warning(
    names: list[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perdure.aio.threads.THREAD_SECONDS", 0.02)
    body = Held()
    run = asyncio.create_task(fan(names, {"a": cast("Action", body)}).compile().ainvoke({}))
    await asyncio.to_thread(body.entered.wait, 30)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    assert not body.returned
    assert "still runs in its thread 0.02 seconds after it was cancelled" in caplog.text
    body.leave.set()


def logs_in_a_thread(state: Log) -> Any:
    return logs("a")(state)


async def test_a_sync_function_that_returns_an_awaitable_is_awaited() -> None:
    graph = StateGraph(Log).add_node("a", logs_in_a_thread).add_edge(START, "a").compile()

    assert (await graph.ainvoke({}))["log"] == ["a"]


async def test_a_sync_path_runs_in_place() -> None:
    threads: list[threading.Thread] = []

    def path(state: Log) -> list[str]:
        threads.append(threading.current_thread())
        return []

    await chain(["a"], {"a": returns(Command())}).add_conditional_edges("a", path).compile().ainvoke({})

    assert threads == [threading.current_thread()]
