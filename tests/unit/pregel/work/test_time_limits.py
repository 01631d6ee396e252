"""Time limits of nodes: measured by the run's clock, and nothing is left running."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import anyio
import pytest

from perdure.constants import START
from perdure.data import RetryPolicy, Send, TimeoutPolicy
from perdure.errors import GraphValidationError, InvalidUpdateError, NodeTimeoutError, StaleRunError
from perdure.graph.state import StateGraph
from perdure.pregel.graph import Pregel
from perdure.pregel.plan.limits import timeout_policy
from perdure.pregel.plan.plan import Policies
from perdure.runtime import get_runtime, get_stream_writer
from perdure.testing.clock import FakeClock
from tests.unit.pregel.graphs import (
    Gate,
    Log,
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

RUN = TimeoutPolicy(run_timeout=10)
IDLE = TimeoutPolicy(idle_timeout=10)
HEARTBEAT = TimeoutPolicy(idle_timeout=10, refresh_on="heartbeat")
WIDTHS = pytest.mark.parametrize("names", [["a"], ["a", "b"]], ids=["width 1", "width 2"])


class Timed:
    """A graph whose node `a` has a time limit, on a clock that stands still."""

    def __init__(
        self,
        builder: StateGraph,
        timeout: TimeoutPolicy,
        retry: tuple[RetryPolicy, ...] = (),
        **compiled: Any,
    ) -> None:
        self.clock = FakeClock()
        policies = {"a": Policies(timeout=timeout, retry=retry)}
        self.graph = with_policies(builder.compile(clock=self.clock, **compiled), policies)
        self.tasks = asyncio.all_tasks()

    async def start(self) -> asyncio.Task[Any]:
        run = asyncio.create_task(self.graph.ainvoke({}, thread()))
        await settle()
        return run

    async def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await settle()

    def left(self) -> set[asyncio.Task[Any]]:
        """Return the tasks that run beside those that ran before."""
        return asyncio.all_tasks() - self.tasks


@WIDTHS
async def test_a_node_that_takes_too_long_is_cancelled_and_its_clean_up_awaited(names: list[str]) -> None:
    gate = Gate()
    timed = Timed(fan(names, {"a": gate}), RUN)
    run = await timed.start()
    await timed.advance(9.9)
    assert not run.done()
    await timed.advance(0.1)
    with pytest.raises(NodeTimeoutError) as raised:
        await run

    error = raised.value
    assert str(error) == "Node 'a' exceeded its run timeout of 10.000s (elapsed: 10.000s)."
    assert (error.node, error.kind, error.timeout, error.run_timeout, error.idle_timeout, error.elapsed) == (
        *("a", "run", 10.0),
        *(10.0, None, 10.0),
    )
    assert (gate.cancelled, gate.ended) == (1, 0)
    assert gate.cleaned.is_set()
    assert timed.left() == set()


async def test_a_node_within_its_limit_succeeds_and_leaves_nothing_running() -> None:
    timed = Timed(chain(["a", "b"]), TimeoutPolicy(run_timeout=10, idle_timeout=5))

    assert (await (await timed.start()))["log"] == ["a", "b"]
    assert timed.left() == set()


async def test_a_node_that_ends_at_the_very_moment_has_ended() -> None:
    clock = FakeClock()

    async def sleeps(state: Log) -> Any:
        await clock.sleep(10)
        return {"log": ["a"]}

    graph = with_policies(chain(["a"], {"a": sleeps}).compile(clock=clock), {"a": Policies(timeout=RUN)})
    run = asyncio.create_task(graph.ainvoke({}))
    await settle()
    clock.advance(10)

    assert (await run)["log"] == ["a"]


@pytest.mark.parametrize("began", [0.1, 0.3, 1e9 / 3])
async def test_a_limit_that_floats_cannot_hit_exactly_is_exceeded_all_the_same(began: float) -> None:
    timed = Timed(chain(["a"], {"a": Gate()}), TimeoutPolicy(run_timeout=0.2))
    timed.clock.advance(began)
    run = await timed.start()
    await timed.advance(0.2)
    await timed.advance(0.000_001)
    with pytest.raises(NodeTimeoutError):
        await run


async def test_a_node_that_shows_no_progress_is_stopped() -> None:
    timed = Timed(chain(["a"], {"a": Gate()}), IDLE)
    run = await timed.start()
    await timed.advance(10)
    with pytest.raises(NodeTimeoutError) as raised:
        await run

    assert str(raised.value) == (
        "Node 'a' exceeded its idle timeout of 10.000s without making progress (elapsed: 10.000s)."
    )
    assert (raised.value.kind, raised.value.timeout) == ("idle", 10.0)


async def writes(state: Log) -> None:
    get_stream_writer()("still here")


async def beats(state: Log) -> None:
    get_runtime().heartbeat()


async def runs_a_graph(state: Log) -> None:
    await chain(["inner"]).compile().ainvoke({})


async def nothing(state: Log) -> None: ...


def after_each_event(
    sign: Callable[[Log], Awaitable[None]], events: list[anyio.Event]
) -> Callable[[Log], Any]:
    async def action(state: Log) -> Any:
        for event in events:
            await event.wait()
            await sign(state)
        return {"log": ["a"]}

    return action


async def _stretched(sign: Callable[[Log], Awaitable[None]], policy: TimeoutPolicy) -> bool:
    """Return True if a node that shows this sign after 6 s may continue for 6 s more."""
    events = [anyio.Event(), anyio.Event()]
    timed = Timed(chain(["a"], {"a": after_each_event(sign, events)}), policy)
    run = await timed.start()
    for event in events:
        await timed.advance(6)
        event.set()
        await settle()
    try:
        await run
    except NodeTimeoutError:
        return False
    return True


@pytest.mark.parametrize("sign", [writes, beats, runs_a_graph])
async def test_signs_of_progress_begin_the_idle_time_anew(sign: Callable[[Log], Awaitable[None]]) -> None:
    assert await _stretched(sign, IDLE)


async def test_time_without_a_sign_does_not() -> None:
    assert not await _stretched(nothing, IDLE)


@pytest.mark.parametrize(("sign", "counts"), [(beats, True), (writes, False), (runs_a_graph, False)])
async def test_with_refresh_on_heartbeat_that_alone_is_a_sign(
    sign: Callable[[Log], Awaitable[None]], counts: bool
) -> None:
    assert await _stretched(sign, HEARTBEAT) is counts


@pytest.mark.parametrize("sign", [writes, beats])
async def test_no_sign_stretches_the_run_timeout(sign: Callable[[Log], Awaitable[None]]) -> None:
    assert not await _stretched(sign, TimeoutPolicy(run_timeout=10, idle_timeout=10))


async def test_what_a_graph_below_does_is_progress_of_the_node_that_runs_it() -> None:
    first, second = Gate(), Gate()
    below = chain(["first", "second"], {"first": first, "second": second}).compile()

    async def invokes(state: Log) -> Any:
        return await below.ainvoke({})

    timed = Timed(chain(["a"], {"a": invokes}), IDLE)
    run = await timed.start()
    for gate in (first, second):
        await timed.advance(6)
        gate.open.set()
        await settle()
    await run


async def test_of_two_nested_limits_the_inner_ones_node_is_named_and_the_outer_one_goes_on() -> None:
    clock = FakeClock()
    inner = with_policies(
        chain(["inner"], {"inner": Gate()}).compile(clock=clock), {"inner": Policies(timeout=RUN)}
    )

    async def invokes(state: Log) -> Any:
        try:
            await inner.ainvoke({})
        except NodeTimeoutError as error:
            return {"log": [error.node]}

    limits = {"a": Policies(timeout=TimeoutPolicy(run_timeout=20, idle_timeout=15))}
    run = asyncio.create_task(
        with_policies(chain(["a"], {"a": invokes}).compile(clock=clock), limits).ainvoke({})
    )
    await settle()
    clock.advance(10)

    assert (await run)["log"] == ["inner"]


# After the time is up


class Stubborn:
    """A node that does not let itself be cancelled, until it is let go."""

    def __init__(self, then: Callable[[], Awaitable[Any]] | None = None) -> None:
        self.leave = anyio.Event()
        self.ended = anyio.Event()
        self.then = then
        self.failure: BaseException | None = None

    async def __call__(self, state: Log) -> Any:
        writer = get_stream_writer()
        writer("before")
        while not self.leave.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.leave.wait()
        writer("after")
        get_stream_writer()("after, by another writer")
        try:
            if self.then is not None:
                await self.then()
        except BaseException as failure:
            self.failure = failure
        finally:
            self.ended.set()
        return {"log": ["too late"]}


async def test_a_node_that_swallows_its_cancellation_is_left_alone_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = Stubborn()
    timed = Timed(chain(["a"], {"a": node}), RUN)
    run = await timed.start()
    await timed.advance(10)
    assert not run.done()
    await timed.advance(5)
    with pytest.raises(NodeTimeoutError):
        await run

    assert "Node 'a' still runs 5 seconds after it was cancelled because its time was up." in caplog.text
    assert len(timed.left()) == 1
    node.leave.set()
    await node.ended.wait()
    await settle()
    assert timed.left() == set()


async def test_what_it_does_afterwards_is_seen_by_nobody() -> None:
    below = chain(["inner"]).compile()

    async def runs_on() -> None:
        await below.ainvoke({})

    node, events = Stubborn(runs_on), list[Any]()
    retry = RetryPolicy(initial_interval=0, jitter=False)
    timed = Timed(fan(["a", "gate"], {"a": node, "gate": Gate()}), RUN, (retry,), checkpointer=WatchedSaver())

    async def read() -> None:
        async for event in timed.graph.astream({}, thread(), stream_mode=["custom", "updates"]):
            events.append(event)  # what came before it failed is looked at

    reading = asyncio.create_task(read())
    await settle()
    await timed.advance(10)
    await timed.advance(5)  # the second attempt began
    node.leave.set()
    await node.ended.wait()
    await settle()
    reading.cancel()
    await asyncio.wait([reading])

    # Both attempts said that they began; of the first one's end only the second's is heard.
    assert events.count(("custom", "before")) == 2
    assert events.count(("custom", "after")) == 1
    assert isinstance(node.failure, StaleRunError)
    assert str(node.failure).startswith(
        "Node 'a' was stopped because its time was up, but goes on and invokes "
    )


async def test_a_result_that_comes_after_the_time_was_up_is_dropped() -> None:
    async def swallows(state: Log) -> Any:
        with contextlib.suppress(asyncio.CancelledError):
            await anyio.sleep_forever()
        return {"log": ["too late"]}

    timed = Timed(chain(["a"], {"a": swallows}), RUN)
    run = await timed.start()
    await timed.advance(10)
    with pytest.raises(NodeTimeoutError):
        await run


async def test_an_error_in_the_clean_up_is_noted() -> None:
    async def cleans_badly(state: Log) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise KeyError("clean-up")

    timed = Timed(chain(["a"], {"a": cleans_badly}), RUN)
    run = await timed.start()
    await timed.advance(10)
    with pytest.raises(NodeTimeoutError) as raised:
        await run

    assert raised.value.__notes__[0] == "It then raised, while it was cancelled: KeyError('clean-up')"


@WIDTHS
async def test_each_attempt_has_the_whole_time(names: list[str]) -> None:
    attempts = 0

    async def slow_at_first(state: Log) -> Any:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            await anyio.sleep_forever()
        return {"log": ["a"]}

    retry = RetryPolicy(initial_interval=2, backoff_factor=1, jitter=False)
    timed = Timed(fan(names, {"a": slow_at_first}), RUN, (retry,))
    run = await timed.start()
    for wait, begun in ((10, 1), (2, 2), (9.9, 2), (0.1, 2), (2, 3)):
        await timed.advance(wait)
        assert attempts == begun

    assert (await run)["log"] == ["a", *names[1:]]


# A cancellation from outside


@WIDTHS
async def test_a_cancellation_of_the_run_is_told_from_the_limits_own(names: list[str]) -> None:
    gate = Gate()
    timed = Timed(fan(names, {"a": gate}), RUN)
    run = await timed.start()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    assert gate.cleaned.is_set()
    assert timed.left() == set()


async def test_a_scope_around_the_run_may_end_it() -> None:
    gate = Gate()
    timed = Timed(chain(["a"], {"a": gate}), RUN)
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:

            async def stop() -> None:
                await gate.entered.wait()
                scope.cancel()

            group.start_soon(stop)
            await timed.graph.ainvoke({})

    assert scope.cancelled_caught
    assert gate.cleaned.is_set()
    assert timed.left() == set()


async def test_a_cancellation_that_comes_while_the_limit_stops_the_node_wins() -> None:
    node = Stubborn()
    timed = Timed(chain(["a"], {"a": node}), RUN)
    run = await timed.start()
    await timed.advance(10)
    run.cancel()
    await settle()
    node.leave.set()
    with pytest.raises(asyncio.CancelledError):
        await run


async def test_a_librarys_cancelled_error_is_the_nodes_own_here_too() -> None:
    timed = Timed(chain(["a"], {"a": fails(asyncio.CancelledError())}), RUN)
    with pytest.raises(Exception, match="Node 'a' raised CancelledError, but nobody cancelled the run"):
        await (await timed.start())


@pytest.mark.parametrize("ends", [KeyboardInterrupt, SystemExit])
def test_what_ends_the_program_leaves_a_timed_node_too(ends: type[BaseException]) -> None:
    graph = with_policies(chain(["a"], {"a": fails(ends())}).compile(), {"a": Policies(timeout=RUN)})
    with pytest.raises(ends):
        asyncio.run(graph.ainvoke({}))


# Sends


def sending(*sends: Send) -> StateGraph:
    return chain(["go"], {"go": returns(list(sends))})


@pytest.mark.parametrize("limit", [3, 3.0, timedelta(seconds=3), TimeoutPolicy(run_timeout=3)])
@pytest.mark.parametrize("stored", [False, True])
async def test_a_send_may_set_its_own_limit(limit: Any, stored: bool) -> None:
    saver = WatchedSaver() if stored else None
    timed = Timed(sending(Send("a", {}, timeout=limit)).add_node("a", Gate()), RUN, checkpointer=saver)
    run = await timed.start()
    await timed.advance(3)
    with pytest.raises(NodeTimeoutError, match=r"run timeout of 3\.000s"):
        await run


async def test_a_send_may_limit_a_node_that_has_no_policies() -> None:
    clock = FakeClock()
    graph = sending(Send("b", {}, timeout=3), Send("b", {})).add_node("b", Gate()).compile(clock=clock)
    run = asyncio.create_task(graph.ainvoke({}))
    await settle()
    clock.advance(3)
    with pytest.raises(NodeTimeoutError, match="Node 'b'"):
        await run


async def test_the_limit_of_a_send_is_kept_by_a_saver() -> None:
    clock, saver = FakeClock(), WatchedSaver()
    builder = sending(Send("b", {}, timeout=3)).add_node("b", Gate())
    graph = builder.compile(clock=clock, checkpointer=saver)
    run = asyncio.create_task(graph.ainvoke({}, thread(), durability="sync"))
    await settle()
    run.cancel()
    await asyncio.wait([run])
    again = asyncio.create_task(graph.ainvoke(None, thread()))
    await settle()
    clock.advance(3)
    with pytest.raises(NodeTimeoutError):
        await again


async def test_a_limit_that_makes_no_sense_is_an_error_of_the_sender() -> None:
    builder = sending(Send("b", {}, timeout=-1)).add_node("b", logs("b"))
    with pytest.raises(InvalidUpdateError) as raised:
        await builder.compile().ainvoke({})

    assert str(raised.value) == (
        "The return value of 'go' is a Send to 'b' with a bad timeout: "
        "run_timeout must be greater than 0, not -1."
    )


async def test_a_limit_for_a_sync_node_is_an_error_of_the_sender() -> None:
    def body(state: Log) -> None: ...

    builder = sending(Send("b", {}, timeout=1)).add_node("b", body)
    with pytest.raises(InvalidUpdateError, match="with a timeout to 'b', which is a sync node: its thread"):
        await builder.compile().ainvoke({})


# What a policy may say


@pytest.mark.parametrize(
    ("given", "policy"),
    [
        (None, None),
        (TimeoutPolicy(), None),
        (2, TimeoutPolicy(run_timeout=2.0)),
        (timedelta(minutes=1), TimeoutPolicy(run_timeout=60.0)),
        (TimeoutPolicy(idle_timeout=timedelta(seconds=1.5)), TimeoutPolicy(idle_timeout=1.5)),
        (HEARTBEAT, TimeoutPolicy(idle_timeout=10.0, refresh_on="heartbeat")),
    ],
)
def test_what_limits_a_node(given: Any, policy: TimeoutPolicy | None) -> None:
    assert timeout_policy(given) == policy


@pytest.mark.parametrize("limit", [0, -1, float("nan"), timedelta(0)])
def test_a_limit_is_positive(limit: Any) -> None:
    with pytest.raises(GraphValidationError, match="run_timeout must be greater than 0"):
        timeout_policy(limit)
    with pytest.raises(GraphValidationError, match="idle_timeout must be greater than 0"):
        timeout_policy(TimeoutPolicy(idle_timeout=limit))


@pytest.mark.parametrize("limit", ["10", True, [1]])
def test_a_limit_is_a_number_or_a_timedelta(limit: Any) -> None:
    with pytest.raises(TypeError, match="run_timeout must be a number of seconds or a timedelta, not "):
        timeout_policy(limit)


def test_what_refreshes_is_known() -> None:
    unknown: Any = "sometimes"
    with pytest.raises(
        GraphValidationError, match="refresh_on must be 'auto' or 'heartbeat', not 'sometimes'"
    ):
        timeout_policy(TimeoutPolicy(run_timeout=1, refresh_on=unknown))


# Supersteps


def limited(builder: StateGraph, limit: Any, clock: FakeClock, saver: WatchedSaver | None = None) -> Pregel:
    graph = builder.compile(clock=clock, checkpointer=saver)
    graph.step_timeout = limit
    return graph


@pytest.mark.parametrize("limit", [10, timedelta(seconds=10)])
@pytest.mark.parametrize("names", [["a"], ["a", "b"]], ids=["width 1", "width 2"])
async def test_a_superstep_that_takes_too_long_is_stopped_and_what_finished_is_kept(
    names: list[str], limit: Any
) -> None:
    clock, saver, gate, before = FakeClock(), WatchedSaver(), Gate(), asyncio.all_tasks()
    graph = limited(fan(names, {"a": gate}), limit, clock, saver)
    run = asyncio.create_task(graph.ainvoke({}, thread()))
    await settle()
    clock.advance(9.9)
    await settle()
    assert not run.done()
    clock.advance(0.1)
    with pytest.raises(TimeoutError) as raised:
        await run

    assert str(raised.value).startswith(
        "Timed out: a superstep took longer than 10 s (step_timeout) because of 'a'."
    )
    assert gate.cleaned.is_set()
    assert asyncio.all_tasks() == before
    assert (await graph.aget_state(thread())).next == ("a",)
    gate.open.set()
    assert (await graph.ainvoke(None, thread()))["log"] == names[1:]


@pytest.mark.parametrize("names", [["a"], ["a", "b"]], ids=["width 1", "width 2"])
@pytest.mark.parametrize("error", [None, ValueError("boom")], ids=["result", "error"])
async def test_a_superstep_whose_last_task_ends_when_its_time_is_up_has_ended(
    names: list[str], error: Exception | None
) -> None:
    clock, saver = FakeClock(), WatchedSaver()

    async def sleeps(state: Log) -> Any:
        await clock.sleep(10)
        if error is not None:
            raise error
        return {"log": ["a"]}

    graph = limited(fan(names, {"a": sleeps}), 10, clock, saver)
    run = asyncio.create_task(graph.ainvoke({}, thread()))
    await settle()
    clock.advance(10)

    if error is None:
        assert (await run)["log"] == names
    else:
        with pytest.raises(ValueError, match="boom"):
            await run


async def test_each_superstep_has_the_whole_time() -> None:
    clock = FakeClock()

    async def sleeps(state: Log) -> Any:
        await clock.sleep(6)
        return {"log": ["ran"]}

    run = asyncio.create_task(limited(chain("ab", {"a": sleeps, "b": sleeps}), 10, clock).ainvoke({}))
    for _ in range(2):
        await settle()
        clock.advance(6)

    assert (await run)["log"] == ["ran", "ran"]


async def test_a_superstep_within_its_limit_may_fail() -> None:
    with pytest.raises(ValueError, match="boom"):
        await limited(fan("ab", {"a": fails(ValueError("boom"))}), 10, FakeClock()).ainvoke({})


async def test_a_limit_of_supersteps_is_not_inherited_by_graphs_below() -> None:
    clock, below = FakeClock(), chain(["inner"]).compile()

    async def invokes(state: Log) -> Any:
        return await below.ainvoke({})

    assert (await limited(chain(["a"], {"a": invokes}), 10, clock).ainvoke({}))["log"] == ["inner"]


async def test_a_limit_of_supersteps_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(GraphValidationError, match="step_timeout must be greater than 0, not 0"):
        await limited(StateGraph(Log).add_node("a", logs("a")).add_edge(START, "a"), 0, FakeClock()).ainvoke(
            {}
        )
