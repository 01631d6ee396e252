"""Siblings: each is cancelled once, by whatever cause, and has ended when `run` returns."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from perdure.aio.siblings import Siblings
from tests.unit.aio.causes import (
    CAUSES,
    PATIENTS,
    STEPS,
    BoomError,
    Cause,
    Patient,
    all_begun,
    assert_cancelled_once,
    turns,
)

LIMITS = [None, 3, 10]


async def raising(siblings: Siblings, bodies: list[Any], limit: int | None = None) -> None:
    """Run siblings, and raise a cancellation as every caller does."""
    cancelled = await siblings.run(bodies, limit)
    if cancelled is not None:
        raise cancelled


def waiting_for(patients: list[Any], then: Callable[[], object]) -> Callable[[], Any]:
    """Make a body that calls `then` when all patients have begun."""

    async def body() -> None:
        for patient in patients:
            await patient.began.wait()
        then()

    return body


async def test_bodies_run_side_by_side_until_all_have_ended() -> None:
    barrier, ended = asyncio.Barrier(3), []

    def body(number: int) -> Callable[[], Any]:
        async def meet() -> None:
            await barrier.wait()
            ended.append(number)

        return meet

    assert await Siblings().run([body(n) for n in range(3)], None) is None
    assert sorted(ended) == [0, 1, 2]


async def test_no_bodies_end_at_once() -> None:
    assert await Siblings().run([], None) is None
    assert await Siblings().run([], 2) is None


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("kind", PATIENTS)
async def test_a_sibling_that_stops_the_others_cancels_each_once(
    kind: type[Patient], limit: int | None
) -> None:
    siblings, patients = Siblings(), [kind(), kind()]

    cancelled = await siblings.run([*patients, waiting_for(patients, siblings.stop)], limit)

    assert cancelled is None
    assert siblings.stopping
    assert_cancelled_once(patients)


async def test_siblings_that_all_stop_the_others_do_not_cancel_them_again() -> None:
    siblings, patient = Siblings(), Patient()
    stopping = waiting_for([patient], siblings.stop)

    await siblings.run([patient, stopping, stopping, stopping], None)

    assert_cancelled_once([patient])


async def test_who_stops_the_others_runs_on() -> None:
    siblings, steps = Siblings(), []

    async def stopping() -> None:
        siblings.stop()
        await turns(3)
        siblings.stop()
        await turns(3)
        steps.append("end")

    await siblings.run([stopping], None)

    assert steps == ["end"]


async def test_who_stops_the_others_is_stopped_by_another() -> None:
    siblings, first, order = Siblings(), Patient(), list[str]()

    async def stopping() -> None:
        siblings.stop()
        order.append("stopped")
        await first()

    async def swallowing() -> None:
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            await first.began.wait()
            siblings.stop()

    await siblings.run([swallowing, stopping], None)

    assert order == ["stopped"]
    assert_cancelled_once([first])


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("kind", PATIENTS)
@pytest.mark.parametrize("cause", CAUSES)
async def test_a_cancelled_caller_cancels_each_body_once_and_outlasts_it(
    cause: Cause, kind: type[Patient], limit: int | None
) -> None:
    patients, never = [kind(), kind(), kind()], Patient()
    siblings = Siblings()
    bodies = [*patients, never] if limit == len(patients) else patients

    await cause(patients, lambda: raising(siblings, bodies, limit))

    assert_cancelled_once(patients)
    assert siblings.stopping
    assert not never.began.is_set()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await turns(3)  # nor is this task cancelled by anything left behind


@pytest.mark.parametrize("cause", CAUSES)
async def test_a_body_that_swallows_its_cancellation_is_not_cancelled_again(
    cause: Cause,
) -> None:
    patients = [Patient(swallows=True), Patient(swallows=True)]

    await cause(patients, lambda: raising(Siblings(), patients))

    assert_cancelled_once(patients)


@pytest.mark.parametrize("limit", [None, 2])
async def test_a_body_that_swallows_its_cancellation_lets_nothing_else_begin(limit: int | None) -> None:
    siblings, patient, never = Siblings(), Patient(swallows=True), Patient()

    await siblings.run([patient, waiting_for([patient], siblings.stop), *[never] * (limit or 0)], limit)

    assert_cancelled_once([patient])
    assert not never.began.is_set()


async def test_a_cancellation_comes_as_a_value_when_all_have_ended() -> None:
    patients, outcomes = [Patient(), Patient()], list[Any]()

    async def calling() -> None:
        outcomes.append(await Siblings().run(patients, None))

    task = asyncio.create_task(calling())
    await all_begun(patients)
    task.cancel("why")
    await task

    assert isinstance(outcomes[0], asyncio.CancelledError)
    assert outcomes[0].args == ("why",)
    assert task.cancelling() == 1
    assert_cancelled_once(patients)


async def test_of_two_cancellations_the_first_is_returned() -> None:
    patient, outcomes = Patient(), list[Any]()
    patient.may_end.clear()

    async def calling() -> None:
        outcomes.append(await Siblings().run([patient], None))

    task = asyncio.create_task(calling())
    await patient.began.wait()
    for message in ("first", "second"):
        task.cancel(message)
        await turns()
    patient.may_end.set()
    await task

    assert outcomes[0].args == ("first",)
    assert task.cancelling() == 2
    assert_cancelled_once([patient])


@pytest.mark.parametrize("turn", range(8))
async def test_a_cancellation_is_not_lost_in_whichever_turn_of_the_loop_around_the_end_it_comes(
    turn: int,
) -> None:
    may_end, outcomes = asyncio.Event(), list[Any]()

    async def body() -> None:
        await may_end.wait()

    async def calling() -> None:
        outcomes.append(await Siblings().run([body, body], None))

    task = asyncio.create_task(calling())
    await turns(5)
    may_end.set()
    await turns(turn)
    requested = task.cancel()
    await task

    assert isinstance(outcomes[0], asyncio.CancelledError) if requested else outcomes == [None]


@pytest.mark.parametrize("turn", range(8))
async def test_a_scope_may_be_cancelled_in_any_turn_of_the_loop_around_the_end(turn: int) -> None:
    may_end, began, outcomes = asyncio.Event(), asyncio.Event(), list[Any]()

    async def body() -> None:
        began.set()
        await may_end.wait()

    async def calling() -> None:
        with anyio.CancelScope() as scope:
            acting = asyncio.create_task(end(scope))
            cancelled = await Siblings().run([body, body], None)
            outcomes.append(scope.cancel_called)
            if cancelled is not None:
                raise cancelled
            await anyio.lowlevel.checkpoint()
        await acting

    async def end(scope: anyio.CancelScope) -> None:
        await began.wait()
        may_end.set()
        await turns(turn)
        scope.cancel()

    task = asyncio.create_task(calling())
    await task

    assert len(outcomes) == 1
    assert task.cancelling() == 0


@pytest.mark.parametrize("turn", range(8))
async def test_of_a_cancellation_and_one_around_the_end_the_first_is_returned(turn: int) -> None:
    patient, outcomes = Patient(), list[Any]()
    patient.may_end.clear()

    async def calling() -> None:
        outcomes.append(await Siblings().run([patient], None))

    task = asyncio.create_task(calling())
    await patient.began.wait()
    task.cancel("first")
    await turns()
    patient.may_end.set()
    await turns(2 * STEPS + turn)
    task.cancel("second")
    await task

    assert outcomes[0].args == ("first",)
    assert_cancelled_once([patient])


async def test_a_caller_cancelled_before_it_waits_lets_nothing_begin() -> None:
    patients, outcomes = [Patient(), Patient()], list[Any]()

    async def calling() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        outcomes.append(await Siblings().run(patients, None))

    await asyncio.create_task(calling())
    await turns()

    assert isinstance(outcomes[0], asyncio.CancelledError)
    assert not any(patient.began.is_set() for patient in patients)


async def test_in_a_scope_that_is_cancelled_already_nothing_hangs() -> None:
    patients = [Patient(), Patient()]

    with anyio.CancelScope() as scope:
        scope.cancel()
        await raising(Siblings(), patients)

    assert scope.cancelled_caught
    assert all(patient.cancellations == patient.began.is_set() for patient in patients)


async def test_a_child_that_has_not_begun_never_begins() -> None:
    siblings, later = Siblings(), Patient()

    async def stop() -> None:
        siblings.stop()

    assert await siblings.run([stop, later, later], None) is None
    assert not later.began.is_set()
    assert later.cancellations == 0


async def test_stopped_before_it_runs_nothing_begins() -> None:
    siblings, later = Siblings(), Patient()
    siblings.stop()

    assert await siblings.run([later], None) is None
    assert await siblings.run([later, later], 1) is None
    assert not later.began.is_set()


@pytest.mark.parametrize("limit", [1, 2, 5, 100])
async def test_no_more_than_the_limit_run_at_once(limit: int) -> None:
    running, most, order = 0, 0, list[int]()

    def body(number: int) -> Callable[[], Any]:
        async def count() -> None:
            nonlocal running, most
            order.append(number)
            running += 1
            most = max(most, running)
            await turns(3)
            running -= 1

        return count

    await Siblings().run((body(n) for n in range(10)), limit)

    assert most == min(limit, 10)
    assert order == list(range(10))


async def test_with_a_limit_there_are_no_more_children_than_that() -> None:
    children = set[Any]()

    async def body() -> None:
        children.add(asyncio.current_task())
        await turns(3)

    await Siblings().run([body] * 20, 3)

    assert len(children) == 3


async def test_the_error_of_a_body_is_raised_as_itself_when_the_others_were_stopped() -> None:
    siblings, patients, error = Siblings(), [Patient(), Patient()], BoomError()

    def fail() -> None:
        raise error

    with pytest.raises(BoomError) as raised:
        await siblings.run([*patients, waiting_for(patients, fail)], None)

    assert raised.value is error
    assert siblings.stopping
    assert_cancelled_once(patients)


@pytest.mark.parametrize("ending", [KeyboardInterrupt, SystemExit])
async def test_what_ends_the_program_is_raised_in_the_caller(ending: type[BaseException]) -> None:
    patient = Patient()

    def end() -> None:
        raise ending

    with pytest.raises(ending):
        await Siblings().run([patient, waiting_for([patient], end)], None)

    assert_cancelled_once([patient])


async def test_errors_of_several_bodies_are_noted_on_the_first() -> None:
    async def fail(error: Exception) -> None:
        try:
            await turns(2)
        finally:
            raise error

    first = BoomError("first")

    with pytest.raises(BoomError) as raised:
        await Siblings().run([lambda: fail(first), lambda: fail(ValueError("second"))], None)

    assert raised.value is first
    assert "ValueError('second')" in first.__notes__[0]


async def test_an_error_in_the_iterator_is_raised_before_anything_begins() -> None:
    body = Patient()

    def bodies() -> Any:
        yield body
        raise BoomError

    with pytest.raises(BoomError):
        await Siblings().run(bodies(), None)
    await turns(3)
    assert not body.began.is_set()


@pytest.mark.parametrize("limit", [None, 1, 2])
async def test_a_body_that_raises_cancelled_error_has_simply_ended(limit: int | None) -> None:
    steps = list[str]()

    async def gives_up() -> None:
        raise asyncio.CancelledError

    async def goes_on() -> None:
        await turns(5)
        steps.append("end")

    assert await Siblings().run([gives_up, goes_on, gives_up, goes_on], limit) is None
    assert steps == ["end", "end"]


@pytest.mark.parametrize("limit", [1, 2])
async def test_an_error_in_what_follows_is_raised_as_itself(limit: int) -> None:
    patient = Patient()

    async def ends() -> None:
        if limit > 1:
            await patient.began.wait()

    def bodies() -> Any:
        yield ends
        if limit > 1:
            yield patient
        raise BoomError

    with pytest.raises(BoomError):
        await Siblings().run(bodies(), limit)
    assert_cancelled_once([patient] if limit > 1 else [])


@pytest.mark.parametrize("limit", [None, 1, 2])
async def test_bodies_do_not_see_each_others_context_variables(limit: int | None) -> None:
    variable: ContextVar[str] = ContextVar("variable", default="nobody's")
    variable.set("caller's")
    seen = list[str]()

    async def body() -> None:
        seen.append(variable.get())
        variable.set("body's")
        await turns(2)
        seen.append(variable.get())

    await Siblings().run([body] * 4, limit)

    assert sorted(seen) == ["body's"] * 4 + ["caller's"] * 4
    assert variable.get() == "caller's"


async def test_an_anyio_timeout_inside_a_body_ends_only_its_own_block() -> None:
    steps = list[str]()

    async def body() -> None:
        with anyio.move_on_after(0.01) as scope:
            await anyio.sleep_forever()
        await turns(3)
        steps.append("moved on" if scope.cancelled_caught else "")

    assert await Siblings().run([body, body], None) is None
    assert steps == ["moved on"] * 2


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
async def test_a_child_cancelled_from_outside_before_it_began_does_not_hang_the_caller() -> None:
    """As all tasks are when the loop shuts down."""
    siblings, patient, spared = Siblings(), Patient(), list[Any]()

    async def cancel_others() -> None:
        for task in asyncio.all_tasks() - {*spared, asyncio.current_task()}:
            task.cancel()

    calling = asyncio.create_task(raising(siblings, [cancel_others, patient]))
    spared += [asyncio.current_task(), calling]

    with pytest.raises(asyncio.CancelledError):
        await calling
    assert siblings.stopping
    assert not patient.began.is_set()
    gc.collect()  # the coroutine that never began


async def test_an_error_does_not_keep_itself_alive() -> None:
    class HeldError(Exception):
        pass

    async def fail() -> None:
        raise HeldError

    async def calling() -> weakref.ref[HeldError]:
        try:
            await Siblings().run([fail], None)
        except HeldError as error:
            return weakref.ref(error)
        raise AssertionError

    gc.disable()
    try:
        gone = await calling()
        await turns(2)
        assert gone() is None
    finally:
        gc.enable()


async def test_waiting_for_the_clean_up_does_not_spin_the_loop() -> None:
    """A cancelled scope cancels who waits inside, and is not shielded, in every turn of the loop."""
    patient, scope = Patient(), anyio.CancelScope()
    patient.may_end.clear()

    async def calling() -> None:
        with scope:
            await raising(Siblings(), [patient])

    task = asyncio.create_task(calling())
    await patient.began.wait()
    scope.cancel()
    await turns(100)
    cancellings = task.cancelling()
    patient.may_end.set()
    await task

    assert cancellings == 1
    assert_cancelled_once([patient])
