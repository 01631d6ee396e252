"""A race of work against a limit."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from contextvars import ContextVar, copy_context
from typing import Any

import anyio
import pytest

from perdure.aio import racing
from perdure.aio.racing import STOP_SECONDS, End, race
from perdure.testing.clock import FakeClock
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

variable: ContextVar[str] = ContextVar("variable", default="outer")


class Limited:
    """A race against a limit that ends when it is told to."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.expired: list[str] = []
        self._up = asyncio.Event()

    def expire(self) -> None:
        self._up.set()

    async def limit(self) -> str:
        await self._up.wait()
        return "limit"

    async def run(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> End[Any, str]:
        return await race(work(), copy_context(), self.limit(), self.clock, "The work", self.expired.append)


async def returns(value: Any) -> Any:
    await turns(2)
    return value


async def raises(error: BaseException) -> None:
    await turns(2)
    raise error


async def unlimited(work: Coroutine[Any, Any, Any]) -> End[Any, None]:
    return await race(work, copy_context(), None, FakeClock(), "The work")


async def test_work_in_time_returns_its_result() -> None:
    limited = Limited()
    end = await limited.run(lambda: returns("result"))

    assert (end.value, end.error, end.expired) == ("result", None, None)
    assert end.result() == "result"
    assert limited.expired == []
    assert (await unlimited(returns(1))).result() == 1


@pytest.mark.parametrize("error", [BoomError(), KeyboardInterrupt(), SystemExit(1)])
async def test_the_error_of_the_work_is_a_value_until_its_result_is_asked_for(error: BaseException) -> None:
    end = await unlimited(raises(error))

    assert end.error is error
    with pytest.raises(type(error)):
        end.result()


@pytest.mark.parametrize("kind", PATIENTS)
async def test_work_that_is_late_is_cancelled_once_and_outlasted(kind: type[Patient]) -> None:
    limited, patient = Limited(), kind()
    async with once_begun([patient], limited.expire):
        end = await limited.run(patient)

    assert end.expired == "limit"
    assert limited.expired == ["limit"]
    assert_cancelled_once([patient])


async def test_late_work_may_still_return_a_result() -> None:
    limited = Limited()
    began = asyncio.Event()

    async def swallows() -> str:
        began.set()
        with contextlib.suppress(asyncio.CancelledError):
            await anyio.sleep_forever()
        return "late"

    running = asyncio.create_task(limited.run(swallows))
    await began.wait()
    limited.expire()
    end = await running

    assert (end.value, end.expired) == ("late", "limit")


@pytest.mark.parametrize("kind", PATIENTS)
@pytest.mark.parametrize("cause", CAUSES)
async def test_a_cancelled_caller_cancels_the_work_once_and_outlasts_it(
    cause: Cause, kind: type[Patient]
) -> None:
    limited, patient = Limited(), kind()

    async def work() -> None:
        await limited.run(patient)

    await cause([patient], work)

    assert_cancelled_once([patient])
    assert limited.expired == []


async def test_a_limit_that_ends_while_cancelled_work_cleans_up_does_not_cancel_it_again() -> None:
    limited, patient = Limited(), Patient()
    patient.may_end.clear()
    running = asyncio.create_task(limited.run(patient))
    async with once_begun([patient], running.cancel, limited.expire, patient.may_end.set):
        with pytest.raises(asyncio.CancelledError):
            await running

    assert_cancelled_once([patient])


async def test_a_caller_that_is_cancelled_while_late_work_cleans_up_does_not_cancel_it_again() -> None:
    limited, patient = Limited(), Patient()
    patient.may_end.clear()
    running = asyncio.create_task(limited.run(patient))
    async with once_begun([patient], limited.expire, running.cancel, patient.may_end.set):
        with pytest.raises(asyncio.CancelledError):
            await running

    assert_cancelled_once([patient])


async def test_late_work_that_does_not_end_is_left_alone_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limited, patient = Limited(), Patient()
    patient.may_end.clear()
    running = asyncio.create_task(limited.run(patient))

    def let_patience_end() -> None:
        limited.clock.advance(STOP_SECONDS)

    async with once_begun([patient], limited.expire, let_patience_end):
        with caplog.at_level(logging.WARNING):
            end = await running

    assert end.expired == "limit"
    assert "The work still runs 5 seconds after it was cancelled" in caplog.text
    left = tuple(racing._left_alone)
    assert len(left) == 1
    patient.may_end.set()
    await asyncio.wait(left)
    assert_cancelled_once([patient])  # it went on, and was held until its end
    await turns()
    assert not racing._left_alone


async def test_work_runs_in_the_given_context() -> None:
    context = copy_context()

    async def sets() -> None:
        variable.set("inner")

    await race(sets(), context, None, FakeClock(), "The work")

    assert variable.get() == "outer"
    assert context[variable] == "inner"


async def test_a_cancelled_error_that_nobody_asked_for_is_the_works_own() -> None:
    end = await unlimited(raises(asyncio.CancelledError()))

    assert isinstance(end.error, asyncio.CancelledError)


async def test_work_that_survived_a_failed_group_does_not_look_cancelled() -> None:
    async def work() -> None:
        with contextlib.suppress(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(raises(BoomError()))
        await raises(asyncio.CancelledError())

    end = await unlimited(work())

    assert isinstance(end.error, asyncio.CancelledError)


async def test_a_limit_that_fails_stops_the_work() -> None:
    patient = Patient()

    async def limit() -> None:
        await patient.began.wait()
        raise BoomError

    with pytest.raises(BoomError):
        await race(patient(), copy_context(), limit(), FakeClock(), "The work")
    assert_cancelled_once([patient])
