"""The tasks of a superstep: side by side, bounded, each in its own context. The first failure ends all."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import pytest

from perdure.constants import START
from perdure.context import current_task
from perdure.data import Command, RetryPolicy, Send
from perdure.errors import NodeCancelledError
from perdure.graph.state import StateGraph
from perdure.pregel.plan.plan import Policies
from tests.unit.pregel.graphs import Action, Gate, Log, chain, fails, fan, returns, with_policies

setting: contextvars.ContextVar[str] = contextvars.ContextVar("setting", default="unset")


# Failure


@pytest.mark.parametrize("names", [["a"], ["a", "b"]], ids=["width 1", "width 2"])
async def test_a_nodes_error_reaches_the_caller_as_itself_with_a_note_of_the_task(names: list[str]) -> None:
    error = ValueError("boom")
    with pytest.raises(ValueError, match="boom") as raised:
        await fan(names, {"a": fails(error)}).compile().ainvoke({})

    assert raised.value is error
    [note] = error.__notes__
    assert note.startswith("During task with name 'a' and id '")


@pytest.mark.parametrize("max_concurrency", [None, 2, 100])
async def test_the_first_failure_cancels_the_siblings_and_waits_for_their_clean_up(
    max_concurrency: int | None,
) -> None:
    gate = Gate()

    async def fails_later(state: Log) -> None:
        await gate.entered.wait()
        raise ValueError("boom")

    graph = fan(["slow", "bad"], {"slow": gate, "bad": fails_later}).compile()
    with pytest.raises(ValueError, match="boom"):
        await graph.ainvoke({}, {"max_concurrency": max_concurrency})

    assert (gate.cancelled, gate.ended) == (1, 0)
    assert gate.cleaned.is_set()


async def test_of_several_failures_the_first_is_raised_and_the_others_are_noted() -> None:
    entered = anyio.Event()

    async def fails_in_clean_up(state: Log) -> None:
        entered.set()
        try:
            await anyio.sleep_forever()
        finally:
            raise RuntimeError("clean-up")

    async def fails_later(state: Log) -> None:
        await entered.wait()
        raise ValueError("the cause")

    with pytest.raises(ValueError, match="the cause") as raised:
        await fan(["a", "b"], {"a": fails_in_clean_up, "b": fails_later}).compile().ainvoke({})

    assert raised.value.__notes__[1:] == [
        "In the same superstep, node 'a' failed too: RuntimeError('clean-up')"
    ]


class Abort(BaseException):
    """An exception that ends programs, like SystemExit."""


@pytest.mark.parametrize("names", [["a"], ["a", "b"]], ids=["width 1", "width 2"])
async def test_what_is_not_an_exception_stops_the_run_too(names: list[str]) -> None:
    gate = Gate()

    async def aborts(state: Log) -> None:
        if len(names) > 1:
            await gate.entered.wait()
        raise Abort

    with anyio.fail_after(5), pytest.raises(Abort):
        await fan(names, {"a": aborts, "b": gate}).compile().ainvoke({})

    assert gate.cancelled == len(names) - 1


# Cancellation that nobody asked for


async def cancelled_by_a_library(state: Log) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


@pytest.mark.parametrize("names", [["a"], ["a", "b"]], ids=["width 1", "width 2"])
@pytest.mark.parametrize("limit", [None, 1], ids=["unbounded", "bounded"])
async def test_a_library_that_raises_cancelled_error_is_the_nodes_error(
    names: list[str], limit: int | None
) -> None:
    graph = fan(names, {"a": cancelled_by_a_library}).compile()
    with pytest.raises(NodeCancelledError, match="Node 'a' raised CancelledError, but nobody") as raised:
        await graph.ainvoke({}, {"max_concurrency": limit})

    assert isinstance(raised.value.__cause__, asyncio.CancelledError)
    current = asyncio.current_task()
    assert current is not None
    assert current.cancelling() == 0


async def cancels_itself(state: Log) -> None:
    current = asyncio.current_task()
    assert current is not None
    current.cancel()
    await asyncio.sleep(0)


async def test_a_node_that_cancels_itself_has_failed_although_another_leaves_for_a_graph_around() -> None:
    leaves = returns(Command(graph=Command.PARENT))
    child = fan(["a", "b"], {"a": leaves, "b": cancels_itself}).compile()
    with pytest.raises(NodeCancelledError, match="Node 'b'"):
        await chain(["parent"], {"parent": child.ainvoke}).compile().ainvoke({})


async def test_it_is_told_from_a_real_one_in_a_task_that_survived_a_cancellation() -> None:
    async def survivor() -> None:
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError:  # and goes on: what a server's last request may do
            await chain(["a"], {"a": cancelled_by_a_library}).compile().ainvoke({})

    task = asyncio.create_task(survivor())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(NodeCancelledError):
        await task


async def test_a_node_may_use_timeouts_of_its_own() -> None:
    async def times_out(state: Log) -> Any:
        with anyio.move_on_after(0):
            await anyio.sleep_forever()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 0)
        async with asyncio.timeout(None):
            await asyncio.sleep(0)
        return {"log": ["a"]}

    assert (await chain(["a", "b"], {"a": times_out}).compile().ainvoke({}))["log"] == ["a", "b"]
    assert (await fan(["a", "b"], {"a": times_out}).compile().ainvoke({}))["log"] == ["a", "b"]


# A bound on concurrency


class Counter:
    """A counter of bodies that run at once, and of their maximum."""

    def __init__(self) -> None:
        self.now = self.most = self.all = 0

    async def __call__(self, state: Any) -> Any:
        self.now += 1
        self.all += 1
        self.most = max(self.most, self.now)
        for _ in range(1 + self.all % 3):
            await anyio.lowlevel.checkpoint()
        self.now -= 1


@pytest.mark.parametrize("limit", [1, 2, 7, 29, 30, 31, None])
async def test_as_many_tasks_run_at_once_as_allowed_and_never_more(limit: int | None) -> None:
    counter = Counter()
    builder = chain(["a"], {"a": returns([Send("b", i) for i in range(30)])}).add_node("b", counter)
    await builder.compile().ainvoke({}, {"max_concurrency": limit})

    assert counter.all == 30
    assert counter.most == min(limit or 30, 30)


async def test_bounded_tasks_start_in_their_order() -> None:
    order: list[int] = []

    async def body(number: int) -> None:
        order.append(number)
        await anyio.lowlevel.checkpoint()

    builder = chain(["a"], {"a": returns([Send("b", i) for i in range(20)])}).add_node("b", body)
    await builder.compile().ainvoke({}, {"max_concurrency": 3})

    assert order == list(range(20))


async def test_after_a_failure_no_waiting_task_starts_even_where_a_sibling_swallows_its_cancellation() -> (
    None
):
    entered = anyio.Event()
    started: list[str] = []

    async def swallows(state: Log) -> None:
        entered.set()
        with contextlib.suppress(asyncio.CancelledError):
            await anyio.sleep_forever()

    async def fails_later(state: Log) -> None:
        await entered.wait()
        raise ValueError("boom")

    async def starts(state: Log) -> None:
        started.append("c")

    graph = fan("abc", {"a": swallows, "b": fails_later, "c": starts}).compile()
    with pytest.raises(ValueError, match="boom"):
        await graph.ainvoke({}, {"max_concurrency": 2})

    assert started == []


# Context variables


@pytest.mark.parametrize("names", [["a"], ["a", "b"]], ids=["width 1", "width 2"])
@pytest.mark.parametrize("limit", [None, 1], ids=["unbounded", "bounded"])
async def test_a_node_sees_the_callers_context_and_leaks_nothing(names: list[str], limit: int | None) -> None:
    seen: dict[str, str] = {}

    def node(name: str) -> Action:
        async def body(state: Log) -> None:
            seen[f"{name} before"] = setting.get()
            setting.set(f"set by {name}")
            await anyio.lowlevel.checkpoint()
            seen[f"{name} after"] = setting.get()

        return body

    setting.set("the caller's")
    builder = fan(names, {name: node(name) for name in names}).add_node("next", node("next"))
    await builder.add_edge("a", "next").compile().ainvoke({}, {"max_concurrency": limit})

    assert setting.get() == "the caller's"
    assert current_task.get() is None, "nor does the engine leak its own"
    assert {value for key, value in seen.items() if key.endswith("before")} == {"the caller's"}
    assert all(seen[f"{name} after"] == f"set by {name}" for name in [*names, "next"])


@pytest.mark.parametrize("names", [["a"], ["a", "b"]], ids=["width 1", "width 2"])
async def test_a_path_runs_in_the_context_of_its_node(names: list[str]) -> None:
    seen: list[str] = []

    async def sets(state: Log) -> None:
        setting.set("set by the node")

    def path(state: Log) -> list[str]:
        seen.append(setting.get())
        return []

    await fan(names, {"a": sets}).add_conditional_edges("a", path).compile().ainvoke({})

    assert seen == ["set by the node"]
    assert setting.get() == "unset"


async def test_tasks_that_a_node_starts_inherit_what_it_set() -> None:
    seen: list[str] = []

    async def look() -> None:
        seen.append(setting.get())

    async def starts(state: Log) -> None:
        setting.set("set by the node")
        await asyncio.create_task(look())
        async with anyio.create_task_group() as group:
            group.start_soon(look)

    await chain(["a"], {"a": starts}).compile().ainvoke({})

    assert seen == ["set by the node"] * 2


async def test_a_failing_node_leaks_no_context_either() -> None:
    async def sets_and_fails(state: Log) -> None:
        setting.set("leaked")
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        await chain(["a"], {"a": sets_and_fails}).compile().ainvoke({})

    assert setting.get() == "unset"


@pytest.mark.parametrize("names", [["a"], ["a", "b"]], ids=["width 1", "width 2"])
async def test_a_cancelled_error_after_a_failed_task_group_is_still_the_nodes_own(names: list[str]) -> None:
    async def boom() -> Any:
        raise ValueError("boom")

    async def node(state: Log) -> Any:
        with contextlib.suppress(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(boom())
        raise asyncio.CancelledError

    with pytest.raises(NodeCancelledError):
        await fan(names, {"a": node}).compile().ainvoke({})


async def test_a_node_that_cancels_its_own_task_beside_others_has_failed() -> None:
    async def node(state: Log) -> Any:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    with pytest.raises(NodeCancelledError, match="Node 'a' raised CancelledError"):
        await fan(["a", "b"], {"a": node}).compile().ainvoke({})


@pytest.mark.parametrize("names", [["a"], ["a", "b"]], ids=["width 1", "width 2"])
@pytest.mark.parametrize("limit", [None, 1], ids=["unbounded", "bounded"])
@pytest.mark.parametrize("timed", [False, True], ids=["with policies", "with a time limit of the superstep"])
async def test_no_way_to_run_a_node_leaks_its_context(
    names: list[str], limit: int | None, timed: bool
) -> None:
    seen: list[str] = []

    async def sets(state: Log) -> None:
        seen.append(setting.get())
        setting.set("leaked")

    builder = fan(names, dict.fromkeys(names, sets)).add_node("next", sets).add_edge("a", "next")
    retried = None if timed else Policies(retry=(RetryPolicy(),))
    graph = with_policies(builder.compile(), {} if retried is None else dict.fromkeys(names, retried))
    graph.step_timeout = 60 if timed else None
    await graph.ainvoke({}, {"max_concurrency": limit})

    assert [*seen, setting.get()] == ["unset"] * (len(names) + 2)


async def test_a_task_that_cancels_its_worker_is_nothing_to_the_next_one_there() -> None:
    tries: list[int] = []

    async def cancels(state: Log) -> Any:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)

    async def fails_once(state: Log) -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError
        return {"log": ["b"]}

    builder = StateGraph(Log).add_node("a", cancels).add_edge(START, "a")
    builder.add_node("b", fails_once, retry_policy=RetryPolicy(initial_interval=0, jitter=False))
    graph = builder.add_edge(START, "b").compile()

    assert await graph.ainvoke({}, {"max_concurrency": 1}) == {"log": ["b"]}
    assert len(tries) == 2
