"""Cancelled nodes: each is cancelled once, by whatever cause, and cleans up before the caller goes on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, cast

import anyio
import pytest

from perdure.data import RetryPolicy, TimeoutPolicy
from perdure.errors import StaleRunError
from perdure.pregel.graph import Pregel
from perdure.pregel.plan.plan import Policies
from perdure.runtime import get_stream_writer
from perdure.testing.clock import FakeClock
from tests.unit.aio.causes import (
    CAUSES,
    PATIENTS,
    BoomError,
    Cause,
    Patient,
    all_begun,
    assert_cancelled_once,
    once_begun,
)
from tests.unit.pregel.graphs import Action, Runs, fan, logs, settle, thread, with_policies
from tests.unit.pregel.savers import WatchedSaver


class Swallowing(Patient):
    """A body that goes on as if it had not been cancelled."""

    def __init__(self) -> None:
        super().__init__(swallows=True)


class WithFailingGroup(Patient):
    """A body whose own task group fails when it is cancelled."""

    async def __call__(self) -> None:
        async def fails() -> None:
            try:
                await anyio.sleep_forever()
            finally:
                raise BoomError("when it was cancelled")

        async with anyio.create_task_group() as group:
            group.start_soon(fails)
            await super().__call__()


class WithFailingTaskGroup(Patient):
    """A body that leaves a task group of asyncio, whose child fails, when it is cancelled."""

    async def __call__(self) -> None:
        async def fails() -> None:
            try:
                await anyio.sleep_forever()
            finally:
                raise BoomError("when it was cancelled")

        async with asyncio.TaskGroup() as group:
            group.create_task(fails())
            await super().__call__()


KINDS = [*PATIENTS, Swallowing, WithFailingGroup, WithFailingTaskGroup]
POLICIES = {
    "retry": Policies(retry=(RetryPolicy(retry_on=Exception),)),
    "time limit": Policies(timeout=TimeoutPolicy(run_timeout=60)),
    "error handler": Policies(handler="handler"),
}
with_kinds = pytest.mark.parametrize("kind", KINDS)
with_causes = pytest.mark.parametrize("cause", CAUSES)
with_each_policy = pytest.mark.parametrize("policies", POLICIES.values(), ids=POLICIES)
with_limits = pytest.mark.parametrize("limit", [None, 2], ids=["unbounded", "bounded"])


@pytest.fixture(autouse=True)
async def nothing_outlives_the_run() -> AsyncIterator[None]:
    yield
    assert asyncio.all_tasks() == {asyncio.current_task()}


def node(patient: Patient) -> Action:
    async def action(state: Any) -> Any:
        get_stream_writer()("begins")
        await patient()
        return {"log": ["patient"]}

    return action


def beside(
    patients: Sequence[Patient],
    others: Mapping[str, Action] | None = None,
    policies: Policies | None = None,
    **compiled: Any,
) -> Pregel:
    """Make a graph of one superstep: a node for each patient, and other nodes."""
    actions = {f"patient {n}": node(patient) for n, patient in enumerate(patients)}
    graph = fan([*actions, *(others or {})], {**actions, **(others or {})}).compile(**compiled)
    if policies is None:
        return graph
    return with_policies(graph, dict.fromkeys(actions, policies), {"handler": handles})


async def handles(state: Any, error: Any) -> Any:
    return {"log": ["handler"]}


def failing(patients: Sequence[Patient]) -> Action:
    """Make a node that fails once all patients have begun."""

    async def action(state: Any) -> None:
        await all_begun(list(patients))
        raise BoomError

    return action


# The caller


@with_causes
@with_kinds
async def test_each_of_two_nodes_is_cancelled_once(cause: Cause, kind: type[Patient]) -> None:
    patients = [kind(), kind()]
    graph = beside(patients)
    await cause(patients, lambda: graph.ainvoke({}))

    assert_cancelled_once(patients)


@with_causes
async def test_each_of_a_hundred_nodes_is_cancelled_once(cause: Cause) -> None:
    patients = [Patient() for _ in range(100)]
    graph = beside(patients)
    await cause(patients, lambda: graph.ainvoke({}))

    assert_cancelled_once(patients)


@with_causes
@with_kinds
async def test_no_other_node_begins_once_those_that_run_are_cancelled(
    cause: Cause, kind: type[Patient]
) -> None:
    patients, runs = [kind(), kind()], Runs()
    graph = beside(patients, {"third": runs.counted("third")})
    await cause(patients, lambda: graph.ainvoke({}, {"max_concurrency": 2}))

    assert_cancelled_once(patients)
    assert runs.of == {}


@with_causes
@with_each_policy
@pytest.mark.parametrize("width", [1, 2])
async def test_a_node_with_policies_is_cancelled_once_and_not_tried_again(
    cause: Cause, policies: Policies, width: int
) -> None:
    patients = [Patient() for _ in range(width)]
    graph = beside(patients, policies=policies)
    await cause(patients, lambda: graph.ainvoke({}))

    assert_cancelled_once(patients)


@with_causes
@with_each_policy
async def test_a_node_with_policies_that_fails_while_it_is_cancelled_is_neither_tried_again_nor_handled(
    cause: Cause, policies: Policies
) -> None:
    patients: list[Patient] = [WithFailingGroup(), WithFailingTaskGroup()]
    graph = beside(patients, policies=policies)
    await cause(patients, lambda: graph.ainvoke({}))

    assert_cancelled_once(patients)


async def test_a_single_node_is_cancelled_by_its_caller_as_the_callers_own_code_is() -> None:
    patient = Patient()
    graph = beside([patient])
    run = asyncio.create_task(graph.ainvoke({}))
    await all_begun([patient])
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    assert_cancelled_once([patient])


# What had returned by then


@with_causes
@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_what_a_node_had_returned_is_stored_when_the_others_are_cancelled(
    cause: Cause, durability: Any
) -> None:
    patients, runs = [Patient(), Patient()], Runs()
    graph = beside(patients, {"quick": runs.counted("quick")}, checkpointer=WatchedSaver())
    await cause(patients, lambda: graph.ainvoke({}, thread(), durability=durability))
    snapshot = await graph.aget_state(thread())

    assert_cancelled_once(patients)
    assert runs.of == {"quick": 1}
    assert set(snapshot.next) == {"patient 0", "patient 1"}
    assert snapshot.values["log"] == ["quick"]


@with_causes
async def test_what_a_node_returns_in_spite_of_its_cancellation_is_stored(cause: Cause) -> None:
    patients: list[Patient] = [Swallowing(), Patient()]
    graph = beside(patients, checkpointer=WatchedSaver())
    await cause(patients, lambda: graph.ainvoke({}, thread()))

    assert_cancelled_once(patients)
    assert (await graph.aget_state(thread())).next == ("patient 1",)


# A sibling


@with_kinds
@with_limits
async def test_a_siblings_failure_cancels_the_others_once(kind: type[Patient], limit: int | None) -> None:
    patients = [kind() for _ in range(1 if limit else 2)]
    graph = beside(patients, {"quick": logs("quick"), "sibling": failing(patients)})
    with pytest.raises(BoomError) as raised:
        await graph.ainvoke({}, {"max_concurrency": limit})

    assert "sibling" in raised.value.__notes__[0]
    assert_cancelled_once(patients)


async def test_a_siblings_failure_cancels_a_hundred_once() -> None:
    patients = [Patient() for _ in range(100)]
    with pytest.raises(BoomError):
        await beside(patients, {"sibling": failing(patients)}).ainvoke({})

    assert_cancelled_once(patients)


@with_each_policy
async def test_a_siblings_failure_cancels_nodes_with_policies_once(policies: Policies) -> None:
    patients = [kind() for kind in KINDS]
    with pytest.raises(BoomError):
        await beside(patients, {"sibling": failing(patients)}, policies).ainvoke({})

    assert_cancelled_once(patients)


async def test_siblings_that_fail_at_once_cancel_the_others_once() -> None:
    patients = [Patient(), Patient()]
    others = {f"sibling {n}": failing(patients) for n in range(3)}
    with pytest.raises(BoomError):
        await beside(patients, others).ainvoke({})

    assert_cancelled_once(patients)


@with_causes
async def test_a_sibling_that_fails_while_the_caller_is_cancelled_changes_nothing(cause: Cause) -> None:
    patients = [Patient(), Patient()]

    async def fails_when_cancelled(state: Any) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise BoomError

    graph = beside(patients, {"sibling": fails_when_cancelled})
    await cause(patients, lambda: graph.ainvoke({}))

    assert_cancelled_once(patients)


# A time limit of the superstep


@with_kinds
@pytest.mark.parametrize("width", [1, 2])
async def test_the_time_limit_of_a_superstep_cancels_each_node_once(kind: type[Patient], width: int) -> None:
    clock, patients = FakeClock(), [kind() for _ in range(width)]
    graph = beside(patients, clock=clock)
    graph.step_timeout = 10
    async with once_begun(list(patients), lambda: clock.advance(10)):
        with pytest.raises(TimeoutError, match="a superstep took longer than 10 s"):
            await graph.ainvoke({})

    assert_cancelled_once(patients)


@with_causes
async def test_the_caller_cancels_nodes_under_a_time_limit_once(cause: Cause) -> None:
    patients = [Patient(), Patient()]
    graph = beside(patients)
    graph.step_timeout = 60
    await cause(patients, lambda: graph.ainvoke({}))

    assert_cancelled_once(patients)


# A reader that leaves


@with_kinds
@pytest.mark.parametrize("width", [1, 2, 100])
async def test_leaving_a_stream_cancels_each_node_once(kind: type[Patient], width: int) -> None:
    patients = [kind() for _ in range(width)]
    stream = cast("Any", beside(patients).astream({}, stream_mode="custom"))
    async with contextlib.aclosing(stream):
        await anext(stream)
        await all_begun(list(patients))

    assert_cancelled_once(patients)


@with_causes
@pytest.mark.parametrize("width", [1, 2])
async def test_a_reader_that_is_cancelled_cancels_each_node_once(cause: Cause, width: int) -> None:
    patients = [Patient() for _ in range(width)]
    graph = beside(patients)

    async def reading() -> None:
        async for _ in graph.astream({}):
            pass

    await cause(patients, reading)

    assert_cancelled_once(patients)


# A lease that is lost


@with_kinds
@pytest.mark.parametrize("width", [1, 2])
async def test_a_lost_lease_cancels_each_node_once(kind: type[Patient], width: int) -> None:
    clock, patients = FakeClock(), [kind() for _ in range(width)]
    saver = WatchedSaver(clock)
    saver.renew_error = StaleRunError("another has the thread")
    graph = beside(patients, clock=clock, checkpointer=saver)
    async with once_begun(list(patients), lambda: None, lambda: clock.advance(10)):
        with pytest.raises(StaleRunError, match="another has the thread"):
            await graph.ainvoke({}, thread())

    assert_cancelled_once(patients)
    await settle()
