"""Bodies that clean up in several steps, and the ways in which who waits for them is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

STEPS = 5
"""Times that a clean-up awaits. One that is cancelled again does not get to its end."""


class BoomError(Exception):
    pass


class Patient:
    """A body that waits to be cancelled, and then cleans up in several steps.

    Attributes:
        cancellations: how often CancelledError was raised in it.
    """

    def __init__(self, swallows: bool = False) -> None:
        self.began = asyncio.Event()
        self.cancellations = 0
        self.cleaned_up = False
        self.may_end = asyncio.Event()
        self.may_end.set()
        self._swallows = swallows

    async def __call__(self) -> None:
        self.began.set()
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            self.cancellations += 1
            if not self._swallows:
                raise
        finally:
            await self._clean_up()

    async def _clean_up(self) -> None:
        try:
            await self.may_end.wait()
            for _ in range(STEPS):
                await anyio.lowlevel.checkpoint()
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.cancellations += 1
            raise
        self.cleaned_up = True


class InAnyioScope(Patient):
    async def __call__(self) -> None:
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                group.start_soon(anyio.lowlevel.checkpoint)
                await super().__call__()


class InTimeout(Patient):
    async def __call__(self) -> None:
        async with asyncio.timeout(60):
            await super().__call__()


class InTask(Patient):
    """A body that awaits a task of its own, so that its cancellation takes a detour."""

    async def __call__(self) -> None:
        await asyncio.create_task(super().__call__())


PATIENTS = [Patient, InAnyioScope, InTimeout, InTask]


async def all_begun(patients: list[Any]) -> None:
    for patient in patients:
        await patient.began.wait()


def assert_cancelled_once(patients: list[Any]) -> None:
    assert [patient.cancellations for patient in patients] == [1] * len(patients)
    assert all(patient.cleaned_up for patient in patients)


async def turns(count: int = 50) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


Work = Callable[[], Coroutine[Any, Any, None]]
Cause = Callable[[list[Any], Work], Coroutine[Any, Any, None]]


@asynccontextmanager
async def once_begun(patients: list[Any], *actions: Callable[[], object]) -> AsyncIterator[None]:
    """Do one thing after the other beside the block, from when all patients have begun."""

    async def act() -> None:
        await all_begun(patients)
        for action in actions:
            action()
            await turns()

    acting = asyncio.create_task(act())
    try:
        yield
    finally:
        await acting


def hold_clean_up(patients: list[Any]) -> None:
    for patient in patients:
        patient.may_end.clear()


def let_clean_up(patients: list[Any]) -> None:
    for patient in patients:
        patient.may_end.set()


def expire(limit: anyio.CancelScope | asyncio.Timeout) -> None:
    now = asyncio.get_running_loop().time()
    if isinstance(limit, asyncio.Timeout):
        limit.reschedule(now)
    else:
        limit.deadline = now


async def cancelled_natively(patients: list[Any], work: Work) -> None:
    task = asyncio.create_task(work())
    await all_begun(patients)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def cancelled_natively_twice(patients: list[Any], work: Work) -> None:
    hold_clean_up(patients)
    task = asyncio.create_task(work())
    async with once_begun(patients, task.cancel, task.cancel, partial(let_clean_up, patients)):
        with pytest.raises(asyncio.CancelledError):
            await task
    assert task.cancelling() == 2


async def in_a_cancelled_scope(patients: list[Any], work: Work) -> None:
    with anyio.CancelScope() as scope:
        async with once_begun(patients, scope.cancel):
            await work()
    assert scope.cancelled_caught


async def in_fail_after(patients: list[Any], work: Work) -> None:
    async def around() -> None:
        with anyio.fail_after(60) as scope:
            async with once_begun(patients, partial(expire, scope)):
                await work()

    with pytest.raises(TimeoutError):
        await around()


async def in_move_on_after(patients: list[Any], work: Work) -> None:
    with anyio.move_on_after(60) as scope:
        async with once_begun(patients, partial(expire, scope)):
            await work()
    assert scope.cancelled_caught


async def in_an_anyio_group_that_fails(patients: list[Any], work: Work) -> None:
    async def fail() -> None:
        await all_begun(patients)
        raise BoomError

    async def around() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(fail)
            await work()

    await assert_group_fails(around())


async def assert_group_fails(work: Coroutine[Any, Any, None]) -> None:
    with pytest.raises(ExceptionGroup) as raised:
        await work
    assert raised.group_contains(BoomError)


async def as_a_child_of_an_anyio_group_that_fails(patients: list[Any], work: Work) -> None:
    async def around() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(work)
            await all_begun(patients)
            raise BoomError

    await assert_group_fails(around())


async def in_an_asyncio_group_that_fails(patients: list[Any], work: Work) -> None:
    async def fail() -> None:
        await all_begun(patients)
        raise BoomError

    async def around() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            await work()

    await assert_group_fails(around())


async def in_a_timeout(patients: list[Any], work: Work) -> None:
    async def around() -> None:
        async with asyncio.timeout(60) as timeout, once_begun(patients, partial(expire, timeout)):
            await work()

    with pytest.raises(TimeoutError):
        await around()


async def in_a_timeout_in_a_scope(patients: list[Any], work: Work) -> None:
    with anyio.fail_after(60):
        await in_a_timeout(patients, work)


async def in_a_scope_in_a_timeout(patients: list[Any], work: Work) -> None:
    async with asyncio.timeout(60):
        await in_fail_after(patients, work)


async def in_a_scope_that_ends_and_a_timeout_that_ends_later(patients: list[Any], work: Work) -> None:
    hold_clean_up(patients)
    with anyio.move_on_after(60) as scope:
        async with asyncio.timeout(60) as timeout:
            end = partial(expire, scope), partial(expire, timeout), partial(let_clean_up, patients)
            async with once_begun(patients, *end):
                await work()
    assert scope.cancelled_caught


async def in_a_timeout_that_ends_and_a_scope_that_ends_later(patients: list[Any], work: Work) -> None:
    hold_clean_up(patients)

    async def around(scope: anyio.CancelScope) -> None:
        async with asyncio.timeout(60) as timeout:
            end = partial(expire, timeout), partial(expire, scope), partial(let_clean_up, patients)
            async with once_begun(patients, *end):
                await work()

    with anyio.move_on_after(60) as scope, pytest.raises(TimeoutError):
        await around(scope)


CAUSES = [
    cancelled_natively,
    cancelled_natively_twice,
    in_a_cancelled_scope,
    in_fail_after,
    in_move_on_after,
    in_an_anyio_group_that_fails,
    as_a_child_of_an_anyio_group_that_fails,
    in_an_asyncio_group_that_fails,
    in_a_timeout,
    in_a_timeout_in_a_scope,
    in_a_scope_in_a_timeout,
    in_a_scope_that_ends_and_a_timeout_that_ends_later,
    in_a_timeout_that_ends_and_a_scope_that_ends_later,
]
