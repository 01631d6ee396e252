"""Calls side by side: outcomes in the order of the calls, errors as themselves, nothing left running."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from perdure.aio.gathering import Call, all_of
from tests.unit.aio.causes import CAUSES, Cause, Patient, assert_cancelled_once


class Watched:
    """Calls that count how many run at once, and in which order they began."""

    def __init__(self) -> None:
        self.running = 0
        self.most = 0
        self.began: list[int] = []

    async def call(self, number: int) -> int:
        self.began.append(number)
        self.running += 1
        self.most = max(self.most, self.running)
        for _ in range(5 - number % 3):
            await anyio.lowlevel.checkpoint()
        self.running -= 1
        return number


def raising(error: BaseException) -> Call:
    async def call() -> Any:
        await anyio.lowlevel.checkpoint()
        raise error

    return call


@pytest.mark.parametrize(("limit", "most"), [(None, 8), (3, 3), (1, 1), (20, 8)])
async def test_results_come_in_the_order_of_the_calls_at_most_so_many_at_once(
    limit: int | None, most: int
) -> None:
    watched = Watched()

    assert await all_of([partial(watched.call, n) for n in range(8)], limit=limit) == list(range(8))
    assert watched.began == list(range(8))
    assert watched.most == most


async def test_no_calls_have_no_results() -> None:
    assert await all_of([]) == []


@pytest.mark.parametrize("error", [ValueError("boom"), KeyboardInterrupt("signal")])
async def test_the_first_error_is_raised_as_itself_and_stops_the_others(error: BaseException) -> None:
    stopped = []

    async def waits() -> Any:
        try:
            await anyio.sleep_forever()
        finally:
            stopped.append(True)

    with pytest.raises(type(error)) as raised:
        await all_of([waits, raising(error), waits])

    assert raised.value is error
    assert stopped == [True, True]


async def test_errors_that_are_kept_stand_in_the_place_of_results_and_signals_are_not_kept() -> None:
    error = ValueError("boom")
    watched = Watched()
    calls: list[Call] = [partial(watched.call, 0), raising(error), partial(watched.call, 2)]

    assert await all_of(calls, keep_errors=True, limit=1) == [0, error, 2]
    with pytest.raises(KeyboardInterrupt):
        await all_of([*calls, raising(KeyboardInterrupt())], keep_errors=True)


async def test_cancelling_stops_all_calls() -> None:
    entered, ended = anyio.Event(), []

    async def waits() -> Any:
        entered.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(True)

    run = asyncio.create_task(all_of([waits, waits], keep_errors=True))
    await entered.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    assert ended == [True, True]


async def test_calls_begin_even_if_one_before_them_fails_in_its_first_step() -> None:
    watched = Watched()

    async def fails() -> Any:
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        await all_of([fails, partial(watched.call, 1), partial(watched.call, 2)])

    assert watched.began == [1, 2]


@pytest.mark.parametrize("limit", [None, 2])
@pytest.mark.parametrize("keep_errors", [False, True])
@pytest.mark.parametrize("cause", CAUSES)
async def test_a_cancelled_caller_cancels_each_call_once(
    cause: Cause, keep_errors: bool, limit: int | None
) -> None:
    patients = [Patient(), Patient()]

    async def work() -> None:
        await all_of(patients, limit=limit, keep_errors=keep_errors)

    await cause(patients, work)

    assert_cancelled_once(patients)


@pytest.mark.parametrize("limit", [None, 1, 3])
@pytest.mark.parametrize("keep_errors", [False, True])
async def test_a_cancelled_error_that_nobody_asked_for_is_raised_and_takes_nobodys_result(
    keep_errors: bool, limit: int | None
) -> None:
    calls: list[Call] = [raising(asyncio.CancelledError("a library's")), partial(Watched().call, 1)]

    with pytest.raises(asyncio.CancelledError, match="a library's"):
        await all_of(calls, limit=limit, keep_errors=keep_errors)
