"""The outcomes that count as failures, and the report of several."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace
from typing import Annotated, Any

import anyio
import pytest
from pydantic import AfterValidator, BaseModel

from perdure.cache.memory import InMemoryCache
from perdure.constants import START
from perdure.data import CachePolicy
from perdure.errors import GraphBubbleUp, failures_of
from perdure.graph.state import StateGraph
from perdure.pregel.graph import Pregel
from perdure.pregel.plan.plan import InputReader
from perdure.pregel.step.failures import add_note, unwrapped
from tests.unit.pregel.graphs import Action, Gate, Log, Runs, chain, fails, fan, settle, thread
from tests.unit.pregel.savers import WatchedSaver


class Signal(GraphBubbleUp):
    """A signal without a meaning."""


def test_a_signal_is_found_in_groups_of_nothing_else() -> None:
    signal = Signal()

    assert unwrapped(signal) is signal
    assert unwrapped(BaseExceptionGroup("", [signal, Signal()])) is signal
    assert unwrapped(BaseExceptionGroup("", [BaseExceptionGroup("", [signal])])) is signal


def test_beside_an_error_a_signal_does_not_count() -> None:
    error = ValueError()
    group = BaseExceptionGroup("", [Signal(), BaseExceptionGroup("", [error, Signal()])])
    left = unwrapped(group)

    assert isinstance(left, ExceptionGroup)
    assert isinstance(left.exceptions[0], ExceptionGroup)
    assert left.exceptions[0].exceptions == (error,)


@pytest.mark.parametrize("error", [ValueError(), ExceptionGroup("", [ValueError()]), KeyboardInterrupt()])
def test_what_holds_no_signal_is_left_as_it_is(error: BaseException) -> None:
    assert unwrapped(error) is error


async def test_a_signal_in_a_nodes_task_group_leaves_it_as_itself() -> None:
    signal = Signal()

    async def groups(state: Log) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(_raises(signal))

    with pytest.raises(Signal) as raised:
        await chain(["a"], {"a": groups}).compile().ainvoke({})

    assert raised.value is signal


@pytest.mark.parametrize("names", [["a"], ["a", "b"]], ids=["width 1", "width 2"])
async def test_errors_in_a_nodes_task_group_leave_it_as_their_group(names: list[str]) -> None:
    async def groups(state: Log) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(_raises(ValueError("boom")))

    with pytest.raises(ExceptionGroup) as raised:
        await fan(names, {"a": groups}).compile().ainvoke({})

    assert [str(error) for error in raised.value.exceptions] == ["boom"]


async def survives_a_group(state: Any) -> Any:
    """Suppress the error of a task group whose child fails, as a node."""
    with contextlib.suppress(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(_raises(ValueError("boom")))
    return {"log": ["ran"]}


async def test_a_node_that_survives_a_group_which_failed_has_not_cancelled_its_run() -> None:
    graph = chain(["a", "b"], {"a": survives_a_group}).compile()
    async with asyncio.timeout(30):
        assert (await graph.ainvoke({}))["log"] == ["ran", "b"]
    current = asyncio.current_task()

    assert current is not None
    assert current.cancelling() == 0


async def test_a_run_that_is_cancelled_while_a_group_in_a_node_fails_is_cancelled() -> None:
    reached, failing = asyncio.Event(), asyncio.Event()

    async def slow_to_end() -> None:
        try:
            await failing.wait()
        finally:
            reached.set()
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    async def node(state: Any) -> Any:
        with contextlib.suppress(ExceptionGroup, asyncio.CancelledError):
            async with asyncio.TaskGroup() as group:
                group.create_task(slow_to_end())
                group.create_task(_raises(ValueError("boom")))
        return {"log": ["ran"]}

    runs = Runs()
    graph = chain(["a", "b"], {"a": node, "b": runs.counted("b")}).compile()
    run = asyncio.create_task(graph.ainvoke({}))
    await reached.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    assert runs.of == {}


async def test_a_task_group_that_failed_inside_a_node_keeps_no_waiting_task_from_running() -> None:
    graph = fan("abcde", dict.fromkeys("abcde", survives_a_group)).compile()

    assert (await graph.ainvoke({}, {"max_concurrency": 2}))["log"] == ["ran"] * 5


async def _raises(error: BaseException) -> None:
    raise error


async def _all_fail(errors: dict[str, BaseException], max_concurrency: int | None = None) -> BaseException:
    """Return the error of a run whose nodes all fail before any of them can be stopped."""
    barrier = asyncio.Barrier(len(errors))

    def node(error: BaseException) -> Action:
        async def action(state: Log) -> None:
            try:
                await barrier.wait()
            finally:
                raise error

        return action

    graph = fan(list(errors), {name: node(error) for name, error in errors.items()}).compile()
    with pytest.raises(BaseException) as raised:  # noqa: PT011  # which is what the callers look at
        await graph.ainvoke({}, {"max_concurrency": max_concurrency})
    return raised.value


async def test_all_failures_of_a_superstep_can_be_had_from_the_one_that_is_raised() -> None:
    errors = {name: ValueError(name) for name in "abc"}
    raised = await _all_fail(dict(errors))
    first, *others = failures_of(raised)

    assert first is raised
    assert {id(error) for error in (first, *others)} == {id(error) for error in errors.values()}
    assert len([note for note in raised.__notes__ if "failed too" in note]) == 2


async def test_one_failure_is_all_there_is() -> None:
    error = ValueError("boom")
    with pytest.raises(ValueError, match="boom"):
        await fan("ab", {"a": fails(error)}).compile().ainvoke({})

    assert failures_of(error) == (error,)
    assert failures_of(KeyError()) != ()


async def test_an_error_that_several_nodes_raise_is_one_failure() -> None:
    error = ValueError("boom")
    raised = await _all_fail({"a": error, "b": error})

    assert failures_of(raised) == (error,)
    assert not [note for note in error.__notes__ if "failed too" in note]


async def test_failures_of_a_graph_below_are_told_together_with_those_around_it() -> None:
    entered = anyio.Event()

    def fails_when_stopped(error: Exception) -> Action:
        async def action(state: Log) -> None:
            entered.set()
            try:
                await anyio.sleep_forever()
            finally:
                raise error

        return action

    async def fails_first(state: Log) -> None:
        await entered.wait()
        raise ValueError("a")

    below = fan("ab", {"a": fails_first, "b": fails_when_stopped(ValueError("b"))}).compile()

    async def invokes(state: Log) -> Any:
        return await below.ainvoke({})

    around = fan(["below", "c"], {"below": invokes, "c": fails_when_stopped(ValueError("c"))})
    with pytest.raises(ValueError, match="a") as raised:
        await around.compile().ainvoke({})

    assert list(map(str, failures_of(raised.value))) == ["a", "b", "c"]


@pytest.mark.parametrize("order", [1, -1])
async def test_an_error_beside_a_signal_is_what_is_raised(order: int) -> None:
    raised = await _all_fail(dict([("a", ValueError("boom")), ("b", Signal())][::order]))

    assert isinstance(raised, ValueError)
    assert failures_of(raised) == (raised,)


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("ends", [KeyboardInterrupt(), SystemExit(3)], ids=repr)
async def test_what_ends_the_program_is_raised_before_errors(ends: BaseException, order: int) -> None:
    raised = await _all_fail(dict([("a", ValueError("boom")), ("b", ends)][::order]))

    assert raised is ends


@pytest.mark.parametrize("names", [["a"], ["a", "b"]], ids=["width 1", "width 2"])
@pytest.mark.parametrize("ends", [KeyboardInterrupt, SystemExit])
def test_what_ends_the_program_leaves_a_run_that_has_cleaned_up(
    names: list[str], ends: type[BaseException]
) -> None:
    saver, gate = WatchedSaver(), Gate()

    async def ends_all(state: Log) -> None:
        if len(names) > 1:
            await gate.entered.wait()
        raise ends

    graph = fan([*names, "quick"], {"a": ends_all, "b": gate}).compile(checkpointer=saver)
    with pytest.raises(ends):
        asyncio.run(graph.ainvoke({}, thread()))
    snapshot = asyncio.run(graph.aget_state(thread()))

    assert gate.cancelled == len(names) - 1
    assert snapshot.values["log"] == (["quick"] if len(names) > 1 else snapshot.values["log"])
    assert "a" in snapshot.next
    assert asyncio.run(saver.aorphans()) == []


def test_what_a_sync_node_ends_the_program_with_leaves_the_run() -> None:
    def body(state: Log) -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        asyncio.run(StateGraph(Log).add_node("a", body).add_edge(START, "a").compile().ainvoke({}))


async def test_a_cancelled_sibling_has_not_finished() -> None:
    gate = Gate()

    async def fails_later(state: Log) -> None:
        await gate.entered.wait()
        raise ValueError("boom")

    graph = fan(["slow", "bad"], {"slow": gate, "bad": fails_later}).compile(checkpointer=WatchedSaver())
    with pytest.raises(ValueError, match="boom"):
        await graph.ainvoke({}, thread())
    snapshot = await graph.aget_state(thread())

    assert sorted(snapshot.next) == ["bad", "slow"]
    assert {task.name: task.error for task in snapshot.tasks} == {"slow": None, "bad": "ValueError('boom')"}


@dataclass(frozen=True)
class FrozenError(Exception):
    """An error whose attributes cannot be set."""

    code: int


def test_an_error_that_lets_nobody_set_attributes_gets_its_notes() -> None:
    error = FrozenError(3)
    add_note(error, "one")
    add_note(error, "two")

    assert error.__notes__ == ["one", "two"]


def frozen(*_: Any) -> Any:
    raise FrozenError(4)


@dataclass
class Made:
    def __post_init__(self) -> None:
        frozen()


class Refusing(BaseModel):
    n: Annotated[Any, AfterValidator(lambda value: frozen())] = None


@pytest.mark.parametrize("given", [{"n": 1}, {}])
async def test_raised_by_a_validator_it_reaches_the_caller_as_itself(given: dict[str, Any]) -> None:
    builder = StateGraph(Refusing).add_node("a", lambda state: {"n": 2}).add_edge(START, "a")

    with pytest.raises(FrozenError) as raised:
        await builder.compile().ainvoke(given)
    assert raised.value.__notes__[0].startswith("While validating ")


async def test_raised_while_the_context_is_made_it_reaches_the_caller_as_itself() -> None:
    builder = StateGraph(Log, context_schema=Made).add_node("a", fails(ValueError())).add_edge(START, "a")

    with pytest.raises(FrozenError) as raised:
        await builder.compile().ainvoke({}, context={})
    assert raised.value.__notes__ == ["While making a Made of the context that was given"]


async def test_raised_by_a_key_func_it_reaches_the_caller_as_itself() -> None:
    builder = StateGraph(Log).add_node("a", fails(ValueError()), cache_policy=CachePolicy(key_func=frozen))

    with pytest.raises(FrozenError) as raised:
        await builder.add_edge(START, "a").compile(cache=InMemoryCache()).ainvoke({})
    assert raised.value.__notes__ == ["In the key_func of the cache policy of node 'a'"]


async def test_it_reaches_the_caller_as_itself_with_what_failed_beside_it() -> None:
    raised = await _all_fail({"a": FrozenError(1), "b": FrozenError(2)})

    assert isinstance(raised, FrozenError)
    assert {error.code for error in failures_of(raised) if isinstance(error, FrozenError)} == {1, 2}


async def test_the_note_of_an_input_that_cannot_be_built_names_the_task() -> None:
    def build(state: dict[str, Any]) -> Any:
        raise ValueError("no such state")

    graph = chain(["a"]).compile()
    nodes = {**graph.plan.nodes, "a": replace(graph.plan.nodes["a"], reader=InputReader(build=build))}
    with pytest.raises(ValueError, match="no such state") as raised:
        await Pregel.from_plan(replace(graph.plan, nodes=nodes)).ainvoke({})

    assert raised.value.__notes__ == ["Before task with name 'a' and path '~__pregel_pull, a'"]


@pytest.mark.parametrize("stop", ["cancel", "wait_for", "aclose"])
@pytest.mark.parametrize("stored", [False, True])
async def test_when_a_run_is_stopped_no_graph_below_takes_another_step(stop: str, stored: bool) -> None:
    steps = 0
    entered = anyio.Event()

    async def step(state: Log) -> None:
        nonlocal steps
        steps += 1
        if steps == 5:
            entered.set()
        await anyio.lowlevel.checkpoint()

    below = chain([f"n{i}" for i in range(200)], {f"n{i}": step for i in range(200)}).compile()

    async def invokes(state: Log) -> Any:
        return await below.ainvoke({})

    saver = WatchedSaver() if stored else None
    graph = chain(["a"], {"a": invokes}).compile(checkpointer=saver)
    if stop == "aclose":
        events = graph.astream({"x": 1}, thread(), stream_mode="values")
        assert await anext(events) == {"log": [], "x": 1}
        await entered.wait()
        await events.aclose()  # type: ignore[attr-defined]
    else:
        run = asyncio.create_task(graph.ainvoke({}, thread()))
        await entered.wait()
        if stop == "cancel":
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
        else:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(run, 0)
    taken = steps
    await settle(200)

    assert 5 <= steps == taken < 200
