"""Nodes that are tried again: nobody sees anything of a failed attempt."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from perdure.constants import ERROR
from perdure.context import current_task
from perdure.data import RetryPolicy, Send
from perdure.errors import GraphBubbleUp, NodeCancelledError
from perdure.graph.state import StateGraph
from perdure.pregel.graph import Pregel
from perdure.pregel.plan.plan import Policies
from perdure.runtime import ExecutionInfo, get_runtime
from perdure.testing.clock import FakeClock
from tests.unit.pregel.graphs import Action, Log, Runs, chain, fails, fan, logs, settle, thread, with_policies
from tests.unit.pregel.savers import WatchedSaver

AT_ONCE = RetryPolicy(initial_interval=0, jitter=False, retry_on=Exception)
setting: contextvars.ContextVar[str] = contextvars.ContextVar("setting", default="unset")


def retried(builder: StateGraph, node: str = "a", policy: RetryPolicy = AT_ONCE, **compiled: Any) -> Pregel:
    return with_policies(builder.compile(**compiled), {node: Policies(retry=(policy,))})


class Failing:
    """A node that raises the given errors one after the other, and then succeeds."""

    def __init__(self, *errors: BaseException, before: Callable[[Any], None] | None = None) -> None:
        self.errors = list(errors)
        self.attempts = 0
        self.before = before

    async def __call__(self, state: Any) -> Any:
        self.attempts += 1
        if self.before is not None:
            self.before(state)
        if self.errors:
            raise self.errors.pop(0)
        return {"log": [f"attempt {self.attempts}"]}


WIDTHS = pytest.mark.parametrize("names", [["a"], ["a", "b"]], ids=["width 1", "width 2"])


@WIDTHS
async def test_a_node_that_failed_is_run_again_and_its_success_counts(names: list[str]) -> None:
    node = Failing(ValueError("1"), ValueError("2"))
    result = await retried(fan(names, {"a": node})).ainvoke({})

    assert result["log"] == ["attempt 3", *names[1:]]


@WIDTHS
async def test_after_the_last_attempt_the_last_error_is_raised(names: list[str]) -> None:
    last = ValueError("3")
    node = Failing(ValueError("1"), ValueError("2"), last)
    with pytest.raises(ValueError, match="3") as raised:
        await retried(fan(names, {"a": node})).ainvoke({})

    assert raised.value is last
    assert node.attempts == 3
    counted, during = last.__notes__
    assert counted == "This was attempt 3 of node 'a'."
    assert during.startswith("During task with name 'a' and id ")


async def test_a_single_attempt_says_nothing_of_attempts() -> None:
    with pytest.raises(KeyError) as raised:
        await retried(
            chain(["a"], {"a": fails(KeyError())}), policy=AT_ONCE._replace(retry_on=ValueError)
        ).ainvoke({})

    assert len(raised.value.__notes__) == 1


async def test_the_wait_before_an_attempt_is_measured_by_the_runs_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("random.random", lambda: 0.25)
    clock, node = FakeClock(), Failing(ConnectionError(), ConnectionError())
    run = asyncio.create_task(
        retried(chain(["a"], {"a": node}), policy=RetryPolicy(), clock=clock).ainvoke({})
    )
    for wait, attempts in ((0.75, 1), (1.25, 2)):
        await settle()
        clock.advance(wait - 0.01)
        await settle()
        assert node.attempts == attempts
        clock.advance(0.01)

    assert (await run)["log"] == ["attempt 3"]


async def test_a_cancellation_ends_the_wait_and_the_node_is_not_run_again() -> None:
    node = Failing(ConnectionError())
    run = asyncio.create_task(
        retried(chain(["a"], {"a": node}), policy=RetryPolicy(), clock=FakeClock()).ainvoke({})
    )
    await settle()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    assert node.attempts == 1


@WIDTHS
async def test_a_node_that_makes_an_error_of_its_cancellation_is_not_run_again(names: list[str]) -> None:
    attempts = 0

    async def converts(state: Log) -> None:
        nonlocal attempts
        attempts += 1
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            raise ConnectionError("closed while it was waiting") from None

    run = asyncio.create_task(retried(fan(names, {"a": converts})).ainvoke({}))
    await settle()
    run.cancel()
    with pytest.raises((asyncio.CancelledError, ConnectionError)):
        await run

    assert attempts == 1


async def test_the_failure_of_a_sibling_ends_the_wait_too() -> None:
    waiting, node = anyio.Event(), Failing(ConnectionError(), before=lambda state: waiting.set())

    async def fails_later(state: Log) -> None:
        await waiting.wait()
        await settle()
        raise ValueError("boom")

    graph = retried(fan("ab", {"a": node, "b": fails_later}), policy=RetryPolicy(), clock=FakeClock())
    with pytest.raises(ValueError, match="boom"):
        await graph.ainvoke({})

    assert node.attempts == 1


class Signal(GraphBubbleUp):
    """A signal without a meaning."""


@pytest.mark.parametrize(
    "signal",
    [Signal(), BaseExceptionGroup("in a task group", [Signal()]), SystemExit(3)],
    ids=["signal", "in a group", "exit"],
)
async def test_what_is_no_error_is_not_tried_again(signal: BaseException) -> None:
    node = Failing(signal)
    with pytest.raises(BaseException) as raised:  # noqa: PT011  # the kind is looked at below
        await retried(chain(["a"], {"a": node})).ainvoke({})

    assert node.attempts == 1
    assert isinstance(raised.value, GraphBubbleUp | SystemExit)


async def test_a_librarys_cancelled_error_is_not_tried_again() -> None:
    node = Failing(asyncio.CancelledError())
    with pytest.raises(NodeCancelledError):
        await retried(chain(["a"], {"a": node})).ainvoke({})

    assert node.attempts == 1


async def test_an_error_beside_a_signal_is_tried_again() -> None:
    node = Failing(BaseExceptionGroup("in a task group", [Signal(), ValueError()]))

    assert (await retried(chain(["a"], {"a": node})).ainvoke({}))["log"] == ["attempt 2"]


async def test_an_attempt_is_told_its_number_and_when_the_first_began() -> None:
    clock, told = FakeClock(), []

    def look(state: Log) -> None:
        info = get_runtime().execution_info
        assert isinstance(info, ExecutionInfo)
        told.append((info.node_attempt, info.node_first_attempt_time))
        clock.advance(7)

    await retried(chain(["a"], {"a": Failing(ValueError(), before=look)}), clock=clock).ainvoke({})

    assert told == [(1, 1_700_000_000.0), (2, 1_700_000_000.0)]


async def test_an_attempt_is_given_the_input_as_it_was() -> None:
    seen: list[Any] = []

    def changes(state: Any) -> None:
        seen.append({key: list(value) for key, value in state.items()})
        state["log"].append("mine")
        state["y"] = "mine"

    node = Failing(ValueError(), before=changes)
    assert (await retried(chain(["a"], {"a": node})).ainvoke({"log": ["given"]}))["log"] == [
        "given",
        "attempt 2",
    ]
    sent = Failing(ValueError(), before=changes)
    builder = chain(["go"], {"go": _goes(Send("a", {"log": ["sent"]}))}).add_node("a", sent)
    await retried(builder).ainvoke({})

    assert seen == [{"log": ["given"]}] * 2 + [{"log": ["sent"]}] * 2


def _goes(where: Send) -> Action:
    async def action(state: Log) -> Any:
        return where

    return action


async def test_an_attempt_sees_no_context_variable_of_the_one_before() -> None:
    seen: list[str] = []

    def sets(state: Log) -> None:
        seen.append(setting.get())
        setting.set("set by an attempt")

    await retried(chain(["a"], {"a": Failing(ValueError(), before=sets)})).ainvoke({})

    assert seen == ["unset", "unset"]
    assert (setting.get(), current_task.get()) == ("unset", None)


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_the_reader_and_the_store_see_the_success_alone(durability: Any) -> None:
    saver = WatchedSaver()
    graph = retried(fan("ab", {"a": Failing(ValueError(), ValueError())}), checkpointer=saver)
    events = [event async for event in graph.astream({}, thread(), durability=durability)]

    assert sorted(events, key=str) == [{"a": {"log": ["attempt 3"]}}, {"b": {"log": ["b"]}}]
    writes = [row for commit in saver.sent for row in commit.writes if row.channel == "log"]
    stored = sorted(saver.serde.loads(row.payload)[0] for row in writes)
    assert stored == ([] if durability == "exit" else ["attempt 3", "b"])
    assert ERROR not in {row.channel for commit in saver.sent for row in commit.writes}


async def test_an_attempt_whose_conditional_edge_raised_is_made_again() -> None:
    errors = [RuntimeError("no way")]

    def path(state: Log) -> str:
        if errors:
            raise errors.pop()
        return "b"

    builder = chain(["a"], {"a": Failing()}).add_node("b", logs("b")).add_conditional_edges("a", path)

    assert (await retried(builder).ainvoke({}))["log"] == ["attempt 2", "b"]


async def test_a_sync_node_is_tried_again_in_a_thread() -> None:
    attempts = 0

    def body(state: Log) -> Any:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise ValueError("boom")
        return {"log": ["a"]}

    assert (await retried(chain(["a"], {"a": body})).ainvoke({}))["log"] == ["a"]


@pytest.mark.parametrize("durability", ["sync", "async"])
async def test_a_graph_below_goes_on_where_the_attempt_before_left_it(durability: Any) -> None:
    runs, failures = Runs(), [ValueError("boom")]

    async def second(state: Log) -> Any:
        if failures:
            raise failures.pop()
        return {"log": ["second"]}

    child = chain(
        ["first", "second"], {"first": runs.counted("first"), "second": runs.counted("second", second)}
    )
    below = child.compile()

    async def invokes(state: Log) -> Any:
        return await below.ainvoke({"log": ["given"]})

    graph = retried(chain(["a"], {"a": invokes}), checkpointer=WatchedSaver())
    result = await graph.ainvoke({}, thread(), durability=durability)

    assert result["log"] == ["given", "first", "second"]
    assert runs.of == {"first": 1, "second": 2}


async def test_two_policies_count_failures_together() -> None:
    node = Failing(KeyError(), ValueError(), KeyError())
    policies = (AT_ONCE._replace(retry_on=KeyError, max_attempts=3), AT_ONCE._replace(max_attempts=5))
    graph = with_policies(chain(["a"], {"a": node}).compile(), {"a": Policies(retry=policies)})
    with pytest.raises(KeyError):
        await graph.ainvoke({})

    assert node.attempts == 3


async def test_a_retry_on_that_says_nothing_is_an_error_of_the_node() -> None:
    says_nothing: Any = "ValueError"
    wrong = AT_ONCE._replace(retry_on=says_nothing)
    with pytest.raises(TypeError, match="retry_on must be a class") as raised:
        await retried(chain(["a"], {"a": Failing(ValueError("boom"))}), policy=wrong).ainvoke({})

    assert isinstance(raised.value.__context__, ValueError)


async def test_a_task_group_that_failed_in_an_attempt_is_no_cancellation_of_the_run() -> None:
    attempts = 0

    async def groups(state: Log) -> Any:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            async with asyncio.TaskGroup() as group:
                group.create_task(fails(ValueError("boom"))(state))  # type: ignore[arg-type]
        return {"log": ["a"]}

    assert (await retried(chain(["a"], {"a": groups})).ainvoke({}))["log"] == ["a"]
