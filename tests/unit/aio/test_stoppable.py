"""A block that another task ends: it is cancelled once, and leaving it is no error."""

from __future__ import annotations

import asyncio

import pytest

from perdure.aio.cancellation import Stoppable, cancellations
from tests.unit.aio.causes import (
    CAUSES,
    PATIENTS,
    BoomError,
    Cause,
    Patient,
    assert_cancelled_once,
    once_begun,
    turns,
)


@pytest.mark.parametrize("kind", PATIENTS)
@pytest.mark.parametrize("times", [1, 3])
async def test_a_block_that_is_stopped_is_cancelled_once_and_left_without_an_error(
    kind: type[Patient], times: int
) -> None:
    patient, stoppable = kind(), Stoppable()
    async with once_begun([patient], *[stoppable.stop] * times), stoppable:
        await patient()

    assert_cancelled_once([patient])
    assert cancellations() == 0


async def test_the_error_of_a_block_that_was_stopped_is_raised() -> None:
    async def fails() -> None:
        async with stoppable:
            try:
                await asyncio.Event().wait()
            finally:
                raise BoomError

    stoppable = Stoppable()
    asyncio.get_running_loop().call_soon(stoppable.stop)
    with pytest.raises(BoomError):
        await fails()

    assert cancellations() == 0


async def test_a_timeout_error_of_the_block_is_raised() -> None:
    async def fails() -> None:
        async with Stoppable():
            raise TimeoutError("its own")

    with pytest.raises(TimeoutError, match="its own"):
        await fails()


@pytest.mark.parametrize("before", [True, False], ids=["in the same turn", "when it was left"])
async def test_what_follows_a_block_is_not_cancelled_with_it(before: bool) -> None:
    stoppable = Stoppable()
    async with stoppable:
        if before:
            stoppable.stop()
    stoppable.stop()
    await turns()

    assert cancellations() == 0


@pytest.mark.parametrize("cause", CAUSES)
async def test_a_cancellation_from_around_goes_on_although_the_block_was_stopped(cause: Cause) -> None:
    patient, stoppable = Patient(), Stoppable()

    async def work() -> None:
        async with stoppable:
            try:
                await patient()
            finally:
                stoppable.stop()
                await turns(1)

    await cause([patient], work)
