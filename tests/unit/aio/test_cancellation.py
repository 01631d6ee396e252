"""Finishing work in spite of cancellation."""

from __future__ import annotations

import asyncio

import anyio
import anyio.lowlevel
import pytest

from perdure.aio.cancellation import cancellations, clean_up, outlast
from tests.unit.aio.causes import CAUSES, BoomError, Cause, Patient, turns


class Held(Patient):
    """A body that waits for nothing but its clean-up."""

    async def __call__(self) -> None:
        self.began.set()
        await self._clean_up()


@pytest.mark.parametrize("cause", CAUSES)
async def test_clean_up_is_finished_whatever_cancels_the_caller(cause: Cause) -> None:
    held = Held()
    held.may_end.clear()
    ended = asyncio.create_task(end_after_all_causes(held))

    async def work() -> None:
        await clean_up(held, 60)
        await anyio.lowlevel.checkpoint()  # what a scope has held back comes here

    await cause([held], work)
    await ended

    assert held.cleaned_up
    assert held.cancellations == 0


async def end_after_all_causes(held: Patient) -> None:
    await held.began.wait()
    await turns(200)
    held.may_end.set()


async def test_clean_up_that_takes_too_long_is_given_up() -> None:
    held = Held()
    held.may_end.clear()

    with pytest.raises(TimeoutError):
        await clean_up(held, 0)

    assert not held.cleaned_up


async def test_the_error_of_a_clean_up_is_raised() -> None:
    async def fails() -> None:
        raise BoomError

    with pytest.raises(BoomError):
        await clean_up(fails, 60)


@pytest.mark.parametrize("cause", CAUSES)
async def test_outlasting_tasks_cancels_none_of_them_and_waits_for_all(cause: Cause) -> None:
    held = [Held(), Held()]
    for one in held:
        one.may_end.clear()
    tasks = [asyncio.create_task(one()) for one in held]
    ending = [asyncio.create_task(end_after_all_causes(one)) for one in held]

    async def work() -> None:
        await outlast(*tasks)
        await anyio.lowlevel.checkpoint()

    await cause(held, work)

    assert all(task.done() and not task.cancelled() for task in tasks)
    await asyncio.gather(*ending)


async def test_what_an_outlasted_task_raises_is_left_to_it() -> None:
    async def fails() -> None:
        raise BoomError

    task = asyncio.create_task(fails())
    await outlast(task)

    assert isinstance(task.exception(), BoomError)


async def test_outlasting_nothing_ends_at_once() -> None:
    await outlast()


async def test_cancellations_are_counted_until_they_are_taken_back() -> None:
    task = asyncio.current_task()
    assert task is not None
    before = cancellations()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await anyio.lowlevel.checkpoint()

    assert (before, cancellations()) == (0, 1)
    task.uncancel()
    assert cancellations() == 0
