"""Cancellation of asyncio tasks: counting it, and finishing work in spite of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

CancelledError = asyncio.CancelledError


def cancellations() -> int:
    """Return the number of times the current task was cancelled, less those that were taken back."""
    current = asyncio.current_task()
    return 0 if current is None else current.cancelling()


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
    """

    async def bounded() -> None:
        with anyio.fail_after(seconds):
            await work()

    # In a task of its own, because a shield holds off scopes of anyio, but not what calls Task.cancel.
    task = asyncio.create_task(bounded())
    await outlast(task)
    if task.cancelled():  # as every task is when the loop shuts down: then there is only this one left
        await bounded()
    else:
        task.result()
