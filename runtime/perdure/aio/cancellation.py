"""Cancellation of asyncio tasks: counting it, causing it once, and finishing work in spite of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Self

import anyio

CancelledError = asyncio.CancelledError


def cancellations() -> int:
    """Return the number of times the current task was cancelled, less those that were taken back."""
    current = asyncio.current_task()
    return 0 if current is None else current.cancelling()


class Stoppable:
    """A block that other tasks can end, by one cancellation of the task that it is in.

    Leaving a block that was stopped is no error. A cancelled scope of anyio would also end it, but cancel it
    anew in every turn of the loop: then no `finally: await ...` in it comes to its end.
    """

    __slots__ = ("_left", "_limit")

    def __init__(self) -> None:
        self._limit = asyncio.timeout(None)  # knows its own cancellation, and takes it back
        self._left = False

    async def __aenter__(self) -> Self:
        await self._limit.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> bool:
        self._left = True
        try:
            await self._limit.__aexit__(*raised)
        except (
            TimeoutError
        ):  # in place of the CancelledError, unless somebody else wants the task to end, too
            return True
        return False

    def stop(self) -> None:
        """Cancel the block, unless it was stopped before or has been left."""
        if not self._left and self._limit.when() is None:
            self._limit.reschedule(asyncio.get_running_loop().time())


async def outlast(*tasks: asyncio.Task[Any]) -> None:
    """Wait until all tasks have ended, however often this is cancelled; only then raise the cancellation.

    What the tasks raise is not raised here.
    """
    cancelled: asyncio.CancelledError | None = None
    # The shield holds off scopes of anyio, which would cancel this wait again in every turn of the loop.
    # Task.cancel passes through a shield: it is remembered, and the wait begins anew.
    with anyio.CancelScope(shield=True):
        while not all(task.done() for task in tasks):
            try:
                await asyncio.wait(tasks)  # unlike `await task`, does not cancel the task with this one
            except asyncio.CancelledError as error:
                cancelled = error
    for task in tasks:
        if not task.cancelled():
            task.exception()  # mark it as retrieved, or asyncio logs it when the task is collected
    if cancelled is not None:
        raise cancelled


async def clean_up(work: Callable[[], Awaitable[None]], seconds: float) -> None:
    """Finish `work` although this is cancelled, even repeatedly; a cancellation is raised afterwards.

    Raises:
        TimeoutError: `work` took more than `seconds`.
        RuntimeError: the loop was closed, so that nothing can be done any more.
    """

    async def bounded() -> None:
        with anyio.fail_after(seconds):
            await work()

    # In a task of its own, because a shield holds off scopes of anyio, but not what calls Task.cancel. The
    # loop is asked for first: without one, as when this is collected after it was closed, the coroutine
    # of `bounded` is not made, which nobody would await.
    task = asyncio.get_running_loop().create_task(bounded())
    await outlast(task)
    if task.cancelled():  # as every task is when the loop shuts down: then there is only this one left
        await bounded()
    else:
        task.result()
