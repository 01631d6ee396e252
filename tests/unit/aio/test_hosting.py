"""A run in a task of its own, read from outside."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from perdure.aio.hosting import Hosted, hosted
from tests.unit.aio.causes import CAUSES, BoomError, Cause, Patient, assert_cancelled_once, turns


class Told:
    """Items that a run tells, in batches."""

    def __init__(self) -> None:
        self._items: list[Any] = []
        self._filled = asyncio.Event()
        self.closed = False

    def tell(self, *items: Any) -> None:
        self._items.extend(items)
        self._filled.set()

    async def batches(self) -> list[Any]:
        while not self._items and not self.closed:
            self._filled.clear()
            await self._filled.wait()
        batch, self._items = self._items, []
        return batch

    def close(self) -> None:
        self.closed = True
        self._filled.set()

    def read(self, run: Callable[[], Coroutine[Any, Any, Any]]) -> AsyncIterator[Any]:
        return hosted(lambda: Hosted(run, self.batches, self.close))


class Teller:
    """A run that tells two items, and then waits to be cancelled."""

    def __init__(self) -> None:
        self.told = Told()
        self.patient = Patient()

    async def run(self) -> None:
        self.told.tell(1, 2)
        await self.patient()

    def read(self) -> Any:
        return self.told.read(self.run)


async def test_everything_that_is_told_is_read_in_order() -> None:
    told = Told()

    async def run() -> None:
        told.tell(1, 2)
        await turns(3)
        told.tell(3)
        await turns(3)
        told.tell(4)

    assert [item async for item in told.read(run)] == [1, 2, 3, 4]


async def test_a_run_that_tells_nothing_ends_the_reading() -> None:
    told = Told()

    async def run() -> None:
        await turns(3)

    assert [item async for item in told.read(run)] == []


@pytest.mark.parametrize("error", [BoomError(), KeyboardInterrupt(), SystemExit(2)])
async def test_what_the_run_raises_is_raised_after_all_that_it_told(error: BaseException) -> None:
    told, read = Told(), list[Any]()

    async def run() -> None:
        told.tell(1, 2)
        raise error

    async def read_all() -> None:
        async for item in told.read(run):
            read.append(item)

    with pytest.raises(type(error)) as raised:
        await read_all()
    assert raised.value is error
    assert read == [1, 2]


async def test_the_run_begins_with_the_first_item() -> None:
    teller = Teller()
    reading = teller.read()
    await turns(3)
    assert not teller.patient.began.is_set()

    assert await anext(reading) == 1
    await reading.aclose()


async def test_left_early_the_run_is_cancelled_and_outlasted() -> None:
    teller = Teller()
    reading = teller.read()
    async for _ in reading:
        await teller.patient.began.wait()
        break
    await reading.aclose()

    assert_cancelled_once([teller.patient])
    assert teller.told.closed


async def test_closed_from_another_task_the_run_is_cancelled_and_outlasted() -> None:
    teller = Teller()
    reading = teller.read()
    await asyncio.create_task(anext(reading))
    await teller.patient.began.wait()
    await asyncio.create_task(reading.aclose())

    assert_cancelled_once([teller.patient])


async def test_an_error_of_the_reader_cancels_and_outlasts_the_run() -> None:
    teller = Teller()
    reading = teller.read()
    await anext(reading)
    await teller.patient.began.wait()

    with pytest.raises(BoomError):
        await reading.athrow(BoomError())
    assert_cancelled_once([teller.patient])


async def test_collected_as_garbage_the_run_is_cancelled() -> None:
    teller = Teller()
    reading = teller.read()
    await anext(reading)
    await teller.patient.began.wait()
    del reading
    gc.collect()
    await turns()

    assert_cancelled_once([teller.patient])


@pytest.mark.parametrize("cause", CAUSES)
async def test_a_cancelled_reader_cancels_the_run_once_and_outlasts_it(cause: Cause) -> None:
    teller = Teller()

    async def read() -> None:
        async for _ in teller.read():
            pass

    await cause([teller.patient], read)

    assert_cancelled_once([teller.patient])


async def test_a_reader_cancelled_while_the_run_cleans_up_still_waits_for_it() -> None:
    teller = Teller()
    teller.patient.may_end.clear()
    reading = teller.read()
    await anext(reading)
    await teller.patient.began.wait()
    closing = asyncio.create_task(reading.aclose())
    await turns()
    closing.cancel()
    await turns()
    assert not closing.done()
    teller.patient.may_end.set()

    with pytest.raises(asyncio.CancelledError):
        await closing
    assert_cancelled_once([teller.patient])


async def test_left_early_it_is_closed_before_the_run_is_waited_for() -> None:
    teller, closed = Teller(), list[bool]()

    async def run() -> None:
        try:
            await teller.run()
        finally:
            closed.append(teller.told.closed)

    reading: Any = teller.told.read(run)
    await anext(reading)
    await teller.patient.began.wait()
    await reading.aclose()

    assert closed == [True]


async def test_what_the_run_raises_while_it_is_left_is_nobodys() -> None:
    told = Told()

    async def run() -> None:
        try:
            told.tell(1)
            await asyncio.Event().wait()
        finally:
            raise BoomError

    reading: Any = told.read(run)
    await anext(reading)
    await turns(2)
    await reading.aclose()
