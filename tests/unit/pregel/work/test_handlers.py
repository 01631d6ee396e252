"""Error handlers run in place of failed nodes, in the same superstep, and again after a crash."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypedDict

import anyio
import pytest

from perdure.checkpoint.base import Commit
from perdure.constants import ERROR, ERROR_HANDLER, ERROR_SOURCE, PULL, PUSH, RESERVED_SLOTS, START
from perdure.data import Command, NodeError, RetryPolicy, Send
from perdure.errors import GraphBubbleUp, StoredError
from perdure.graph.state import StateGraph
from perdure.pregel.graph import Pregel
from perdure.pregel.plan.plan import Policies
from perdure.runtime import get_config
from perdure.service.recovery import recover
from perdure.testing.clock import FakeClock
from tests.unit.pregel.graphs import (
    Gate,
    Log,
    Runs,
    chain,
    fails,
    fan,
    logs,
    returns,
    settle,
    thread,
    with_policies,
)
from tests.unit.pregel.savers import WatchedSaver

HANDLER = "__error_handler__a"
BOOM = ValueError("boom")
MODES = pytest.mark.parametrize("durability", ["sync", "async", "exit"])
Handler = Callable[..., Awaitable[Any]]


def handles(log: list[Any] | None = None, result: Any = None) -> Handler:
    """Make a handler that keeps its inputs and errors, and always returns `result`."""

    async def handler(state: Any, error: NodeError | None = None) -> Any:
        if log is not None:
            log.append((state, error))
        return {"log": ["handled"]} if result is None else result

    return handler


def handled(
    builder: StateGraph, handler: Handler, policies: Policies | None = None, **compiled: Any
) -> Pregel:
    """Build the graph with an error handler for node `a`."""
    own = policies or Policies(handler=HANDLER)
    return with_policies(builder.compile(**compiled), {"a": own}, {HANDLER: handler})


@pytest.mark.parametrize("names", [["a"], ["a", "b"]], ids=["width 1", "width 2"])
async def test_a_handlers_result_takes_the_place_of_the_nodes(names: list[str]) -> None:
    told: list[Any] = []
    result = await handled(fan(names, {"a": fails(BOOM)}), handles(told)).ainvoke({"x": 1})

    assert result == {"log": ["handled", *names[1:]], "x": 1}
    [(state, error)] = told
    assert state == {"log": [], "x": 1}
    assert error == NodeError(node="a", error=BOOM)


async def test_a_node_that_succeeds_has_nothing_to_handle() -> None:
    told: list[Any] = []

    assert (await handled(chain(["a", "b"]), handles(told)).ainvoke({}))["log"] == ["a", "b"]
    assert told == []


async def test_siblings_go_on() -> None:
    gate = Gate({"log": ["b"]})

    async def opens(state: Any, error: NodeError | None = None) -> Any:
        await settle()
        gate.open.set()
        return {"log": ["handled"]}

    result = await handled(fan("ab", {"a": fails(BOOM), "b": gate}), opens).ainvoke({})

    assert (result["log"], gate.cancelled) == (["handled", "b"], 0)


async def test_the_nodes_own_edges_do_not_fire_and_the_handler_says_where_to_go() -> None:
    def build(result: Any) -> Pregel:
        builder = chain(["a", "next"], {"a": fails(BOOM)}).add_node("other", logs("other"))
        return handled(builder, handles(result=result))

    goes = Command(update={"log": ["handled"]}, goto="other")

    assert (await build({"log": ["handled"]}).ainvoke({}))["log"] == ["handled"]
    assert (await build(goes).ainvoke({}))["log"] == ["handled", "other"]
    assert (await build(Send("next", {})).ainvoke({}))["log"] == ["next"]


async def test_a_handler_runs_after_the_last_attempt() -> None:
    runs, told = Runs(), list[Any]()
    policies = Policies(
        handler=HANDLER, retry=(RetryPolicy(initial_interval=0, jitter=False, retry_on=ValueError),)
    )
    await handled(chain(["a"], {"a": runs.counted("a", fails(BOOM))}), handles(told), policies).ainvoke({})

    assert (runs.of, len(told)) == ({"a": 3}, 1)


async def test_a_handler_is_given_the_input_as_it_was() -> None:
    told: list[Any] = []

    async def changes(state: Any) -> None:
        state["log"].append("mine")
        raise BOOM

    await handled(chain(["a"], {"a": changes}), handles(told)).ainvoke({"log": ["given"]})
    sends = chain(["go"], {"go": returns(Send("a", {"log": ["sent"]}))}).add_node("a", changes)
    await handled(sends, handles(told)).ainvoke({})

    assert [state for state, _ in told] == [{"log": ["given"]}, {"log": ["sent"]}]


async def test_each_of_several_sends_is_handled_by_itself() -> None:
    told: list[Any] = []

    async def some_fail(number: int) -> Any:
        if number % 2:
            raise ValueError(str(number))
        return {"log": [str(number)]}

    async def handler(number: int, error: NodeError) -> Any:
        told.append((number, str(error.error)))
        return {"log": [f"handled {number}"]}

    builder = chain(["go"], {"go": returns([Send("a", n) for n in range(6)])}).add_node("a", some_fail)
    result = await handled(builder, handler).ainvoke({}, {"max_concurrency": 2})

    assert result["log"] == ["0", "handled 1", "2", "handled 3", "4", "handled 5"]
    assert sorted(told) == [(1, "1"), (3, "3"), (5, "5")]


async def test_a_handler_has_its_nodes_place_among_those_that_run_at_once() -> None:
    now = most = 0

    async def body(number: int, error: NodeError | None = None) -> Any:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await settle(3)
        now -= 1
        if error is None:
            raise BOOM

    builder = chain(["go"], {"go": returns([Send("a", n) for n in range(6)])}).add_node("a", body)
    await handled(builder, body).ainvoke({}, {"max_concurrency": 2})

    assert most == 2


class Signal(GraphBubbleUp):
    """A signal without a meaning."""


@pytest.mark.parametrize("raised", [Signal(), SystemExit(3)], ids=repr)
async def test_what_is_no_error_is_not_handled(raised: BaseException) -> None:
    told: list[Any] = []
    with pytest.raises(type(raised)):
        await handled(chain(["a"], {"a": fails(raised)}), handles(told)).ainvoke({})

    assert told == []


async def test_a_cancelled_node_is_not_handled() -> None:
    gate, told = Gate(), list[Any]()
    run = asyncio.create_task(handled(chain(["a"], {"a": gate}), handles(told)).ainvoke({}))
    await gate.entered.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    assert told == []


async def test_a_handlers_own_failure_fails_the_run_and_is_handled_by_nobody() -> None:
    gate, second = Gate(), KeyError("second")

    async def fails_too(state: Any, error: NodeError) -> Any:
        await gate.entered.wait()
        raise second

    graph = with_policies(
        fan("ab", {"a": fails(BOOM), "b": gate}).compile(),
        {"a": Policies(handler=HANDLER), HANDLER: Policies(handler=HANDLER)},
        {HANDLER: fails_too},
    )
    with pytest.raises(KeyError) as raised:
        await graph.ainvoke({})

    assert raised.value is second
    assert gate.cancelled == 1
    during, instead = second.__notes__
    assert during.startswith(f"During task with name {HANDLER!r} and id ")
    assert instead == "It was raised in place of the error of node 'a': ValueError('boom')"


async def test_a_handler_that_raises_the_error_again_gives_it_to_the_caller() -> None:
    error = ValueError("boom")

    async def raises_again(state: Any, error: NodeError) -> Any:
        raise error.error

    with pytest.raises(ValueError, match="boom") as raised:
        await handled(chain(["a"], {"a": fails(error)}), raises_again).ainvoke({})

    assert raised.value is error
    assert not [note for note in error.__notes__ if "in place of" in note]


async def test_a_handler_may_be_tried_again_itself() -> None:
    errors = [ConnectionError()]

    async def recovers(state: Any, error: NodeError) -> Any:
        if errors:
            raise errors.pop()
        return {"log": [str(error.error)]}

    own = Policies(retry=(RetryPolicy(initial_interval=0, jitter=False),))
    graph = with_policies(
        chain(["a"], {"a": fails(BOOM)}).compile(),
        {"a": Policies(handler=HANDLER), HANDLER: own},
        {HANDLER: recovers},
    )

    assert (await graph.ainvoke({}))["log"] == ["boom"]


@pytest.mark.parametrize("retry", [None, RetryPolicy(initial_interval=0, jitter=False)])
async def test_a_default_handler_is_given_what_its_node_was_in_each_attempt(retry: Any) -> None:
    class Part(TypedDict):
        x: int

    given: list[Any] = []

    async def node(state: Part) -> Any:
        raise BOOM

    async def handler(state: Any, error: NodeError) -> Any:
        given.append(dict(state))
        if retry is not None and len(given) == 1:
            raise ConnectionError

    builder = StateGraph(Log).add_node("a", node, input_schema=Part).add_edge(START, "a")
    builder.set_node_defaults(error_handler=handler, retry_policy=retry)
    await builder.compile().ainvoke({"log": ["hidden"], "x": 1})

    assert given == [{"x": 1}] * (1 if retry is None else 2)


async def test_the_stream_has_the_handlers_update_under_its_own_name() -> None:
    graph = handled(fan("ab", {"a": fails(BOOM)}), handles())
    events = [event async for event in graph.astream({})]

    assert sorted(events, key=str) == [{HANDLER: {"log": ["handled"]}}, {"b": {"log": ["b"]}}]


# What is stored


@pytest.mark.parametrize("durability", ["sync", "async"])
async def test_that_the_node_failed_is_stored_before_the_handler_begins(durability: Any) -> None:
    saver, seen = WatchedSaver(), list[Any]()

    async def looks(state: Any, error: NodeError) -> Any:
        seen.extend(row for commit in saver.acknowledged for row in commit.writes if row.idx < 0)
        return None

    graph = handled(chain(["a"], {"a": fails(BOOM)}), looks, checkpointer=saver)
    await graph.ainvoke({}, thread(), durability=durability)

    assert [(row.channel, row.idx, saver.serde.loads(row.payload)) for row in seen] == [
        (ERROR, RESERVED_SLOTS[ERROR], "ValueError('boom')"),
        (ERROR_SOURCE, RESERVED_SLOTS[ERROR_SOURCE], "a"),
    ]


async def test_with_durability_exit_nothing_is_stored_before_the_end() -> None:
    saver, seen = WatchedSaver(), list[int]()

    async def looks(state: Any, error: NodeError) -> Any:
        seen.append(len(saver.sent))
        return {"log": ["handled"]}

    graph = handled(chain(["a"], {"a": fails(BOOM)}), looks, checkpointer=saver)

    assert (await graph.ainvoke({}, thread(), durability="exit"))["log"] == ["handled"]
    assert seen == [0]
    assert [row.channel for commit in saver.sent for row in commit.writes] == []


async def test_a_handler_does_not_begin_when_the_failure_cannot_be_stored() -> None:
    saver, told = WatchedSaver(), list[Any]()

    async def refuses(commit: Commit) -> None:
        if any(row.idx < 0 for row in commit.writes):
            raise ConnectionError("no database")

    saver.before_commit = refuses
    with pytest.raises(ConnectionError, match="no database"):
        await handled(chain(["a"], {"a": fails(BOOM)}), handles(told), checkpointer=saver).ainvoke(
            {}, thread()
        )

    assert told == []


@MODES
async def test_after_a_handlers_failure_the_handler_runs_again_and_not_the_node(durability: Any) -> None:
    runs, told, broken = Runs(), list[Any](), [KeyError("broken")]

    async def once_broken(state: Any, error: NodeError) -> Any:
        told.append((state, error))
        if broken:
            raise broken.pop()
        return {"log": ["handled"]}

    actions = {"a": runs.counted("a", fails(BOOM)), "b": runs.counted("b")}
    graph = handled(fan("ab", actions), once_broken, checkpointer=WatchedSaver())
    with pytest.raises(KeyError):
        await graph.ainvoke({"x": 1}, thread(), durability=durability)
    stopped = await graph.aget_state(thread())
    b_is_left = runs.of.copy()
    result = await graph.ainvoke(None, thread(), durability=durability)

    assert result == {"log": ["handled", "b"], "x": 1}
    assert runs.of["a"] == 1
    assert b_is_left["a"] == 1
    assert [state for state, _ in told] == [{"log": [], "x": 1}] * 2
    again = told[1][1]
    assert (again.node, str(again.error), type(again.error)) == ("a", "ValueError('boom')", StoredError)
    assert HANDLER in stopped.next
    assert "a" not in stopped.next


@MODES
async def test_a_handled_task_stays_finished_when_a_sibling_fails(durability: Any) -> None:
    runs, told, broken, done = Runs(), list[Any](), [KeyError("broken")], anyio.Event()

    async def fails_once(state: Log) -> Any:
        await done.wait()
        await settle()
        if broken:
            raise broken.pop()
        return {"log": ["b"]}

    async def handler(state: Any, error: NodeError) -> Any:
        told.append(error)
        done.set()
        return Command(update={"log": ["handled"]}, goto="after")

    builder = fan("ab", {"a": runs.counted("a", fails(BOOM)), "b": fails_once}).add_node(
        "after", logs("after")
    )
    graph = handled(builder, handler, checkpointer=WatchedSaver())
    with pytest.raises(KeyError):
        await graph.ainvoke({}, thread(), durability=durability)
    stopped = await graph.aget_state(thread())
    events = [event async for event in graph.astream(None, thread(), durability=durability)]

    assert (runs.of, len(told)) == ({"a": 1}, 1)
    assert stopped.next == ("b",)
    assert stopped.values["log"] == ["handled"]
    shown = {task.name: (task.error, task.result) for task in stopped.tasks}
    assert shown == {
        "a": ("ValueError('boom')", None),
        "b": ("KeyError('broken')", None),
        HANDLER: (None, {"log": ["handled"]}),
    }
    assert events == [
        {HANDLER: {"log": ["handled"]}, "__metadata__": {"cached": True}},
        {"b": {"log": ["b"]}},
        {"after": {"log": ["after"]}},
    ]
    assert (await graph.aget_state(thread())).values["log"] == ["handled", "b", "after"]


async def test_the_state_shows_the_failed_task_and_the_one_in_its_place() -> None:
    async def fails_too(state: Any, error: NodeError) -> Any:
        raise KeyError("too")

    graph = handled(chain(["a"], {"a": fails(BOOM)}), fails_too, checkpointer=WatchedSaver())
    with pytest.raises(KeyError):
        await graph.ainvoke({}, thread())
    failed, handler = (await graph.aget_state(thread())).tasks

    assert (failed.path, failed.error) == ((PULL, "a"), "ValueError('boom')")
    assert (handler.name, handler.path) == (HANDLER, (PULL, "a", ERROR_HANDLER))
    assert handler.error == "KeyError('too')"


async def test_a_handlers_task_says_whose_error_started_it() -> None:
    triggers: list[Any] = []

    async def looks(state: Any, error: NodeError) -> Any:
        config = get_config()
        triggers.append(config["metadata"]["langgraph_triggers"])
        return None

    saver = WatchedSaver()
    graph = handled(chain(["a"], {"a": fails(BOOM)}), looks, checkpointer=saver)
    await graph.ainvoke({}, thread(), durability="sync")
    [failed_id] = {row.task_id for commit in saver.sent for row in commit.writes if row.channel == ERROR}

    assert triggers == [(PUSH, ERROR_HANDLER, failed_id)]


async def test_at_an_older_checkpoint_the_node_would_run_again() -> None:
    async def fails_too(state: Any, error: NodeError) -> Any:
        raise KeyError("too")

    runs = Runs()
    graph = handled(
        chain(["a"], {"a": runs.counted("a", fails(BOOM))}), fails_too, checkpointer=WatchedSaver()
    )
    with pytest.raises(KeyError):
        await graph.ainvoke({}, thread())
    there = (await graph.aget_state(thread())).config

    assert (await graph.aget_state(there)).next == ("a",)


async def test_without_its_handler_the_node_runs_again() -> None:
    async def fails_too(state: Any, error: NodeError) -> Any:
        raise KeyError("too")

    saver = WatchedSaver()
    with pytest.raises(KeyError):
        await handled(chain(["a"], {"a": fails(BOOM)}), fails_too, checkpointer=saver).ainvoke({}, thread())

    assert (await chain(["a"]).compile(checkpointer=saver).ainvoke(None, thread()))["log"] == ["a"]


@pytest.mark.parametrize("durability", ["sync", "async"])
@pytest.mark.parametrize("how", ["recover", "no input"])
async def test_after_a_crash_in_the_handler_the_handler_runs_again_and_not_the_node(
    durability: Any, how: str
) -> None:
    clock, runs, gate = FakeClock(), Runs(), Gate()
    saver = WatchedSaver(clock)

    def graph(handler: Handler) -> Pregel:
        builder = chain(["a"], {"a": runs.counted("a", fails(BOOM))})
        return handled(builder, handler, checkpointer=saver, name="mine", clock=clock)

    async def waits(state: Any, error: NodeError) -> Any:
        return await gate(state)

    run = asyncio.create_task(graph(waits).ainvoke({}, thread(), durability=durability))
    await gate.entered.wait()
    await settle()
    saver.dead, saver.before_commit = True, _dead
    run.cancel()
    await asyncio.wait([run])
    saver.dead, saver.before_commit = False, None
    clock.advance(31)
    told: list[Any] = []
    again = graph(handles(told))
    if how == "recover":
        [recovered] = await recover(again)
        result = recovered.output
    else:
        result = await again.ainvoke(None, thread())

    assert result == {"log": ["handled"]}
    assert runs.of == {"a": 1}
    assert str(told[0][1].error) == "ValueError('boom')"


async def _dead(commit: Commit) -> None:
    raise ConnectionError("this process is dead")
