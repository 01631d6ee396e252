"""A race of work against a limit, which the work loses by being cancelled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import anyio

from perdure.aio.cancellation import cancellations, outlast
from perdure.aio.contexts import in_context
from perdure.clock import Clock

logger = logging.getLogger("perdure")

Result = TypeVar("Result")
Limit = TypeVar("Limit")

STOP_SECONDS: Final = 5.0
"""Seconds that work whose time is up may take to clean up before it is left alone."""


@dataclass(slots=True, kw_only=True)
class End(Generic[Result, Limit]):
    """The end of a race.

    Attributes:
        value: the result of the work; None also if there is none.
        error: the error of the work, if it raised one.
        expired: the limit that ended before the work did; None if the work was within all limits.
    """

    value: Result | None = None
    error: BaseException | None = None
    expired: Limit | None = None

    def result(self) -> Result:
        """Return the result of the work, or raise its error."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]  # None only if that is the result


async def race(
    work: Coroutine[Any, Any, Result],
    context: Context,
    expiry: Coroutine[Any, Any, Limit] | None,
    clock: Clock,
    called: str,
    on_expired: Callable[[Limit], None] | None = None,
) -> End[Result, Limit]:
    """Do `work` in a task of its own, and cancel it when `expiry` ends first.

    The work has ended when this returns, unless it takes more than STOP_SECONDS to be cancelled: then it
    is left alone, with a warning. A cancellation of the caller is passed on to the work, and raised.

    Args:
        expiry: ends when the time of the work is up, with the limit that was reached.
        called: the name of the work, for the warning.
        on_expired: told of the limit before the work is cancelled.
    """
    body = _Body(work, context)
    timer = None if expiry is None else asyncio.create_task(expiry)
    expired: Limit | None = None
    try:
        await body.ended(timer)
        # The timer has ended first. Without a result, because the loop shuts down, it is no limit.
        if not body.task.done() and timer is not None and not timer.cancelled():
            expired = timer.result()
            if on_expired is not None:
                on_expired(expired)
    finally:
        # The loop is closed where this coroutine is collected: then nothing can be awaited.
        if not body.task.get_loop().is_closed():
            await _finish(body, timer, clock, called)
    return body.end(expired)


async def _finish(body: _Body[Any], timer: asyncio.Task[Any] | None, clock: Clock, called: str) -> None:
    """Cancel what still runs and wait for it: for the work no longer than STOP_SECONDS."""
    patience = None
    if not body.task.done():
        patience = asyncio.create_task(clock.sleep(STOP_SECONDS))
        body.cancel()
        await body.ended(patience)
    await _end_timers(timer, patience)
    if not body.task.done():
        _leave_alone(body.task, called)


async def _end_timers(*timers: asyncio.Task[Any] | None) -> None:
    begun = [timer for timer in timers if timer is not None]
    for timer in begun:
        timer.cancel()
    await outlast(*begun)


class _Body(Generic[Result]):
    """The task that does the work. It is cancelled once, whatever the cause and however many there are."""

    __slots__ = ("_caller_cancelled", "_stopping", "task")

    def __init__(self, work: Coroutine[Any, Any, Result], context: Context) -> None:
        self.task = asyncio.create_task(_outcome(work, context))
        self._stopping = False
        self._caller_cancelled: asyncio.CancelledError | None = None

    def cancel(self) -> None:
        if not self._stopping:
            self._stopping = True
            self.task.cancel()

    async def ended(self, timer: asyncio.Task[Any] | None) -> None:
        """Wait until the work or `timer` has ended; a cancellation of the caller cancels the work."""
        both = (self.task,) if timer is None else (self.task, timer)
        while not any(task.done() for task in both):
            try:
                # Once cancelled, a scope around the caller would cancel this wait in every turn of the
                # loop. What calls Task.cancel passes through the shield, and the wait begins anew.
                with anyio.CancelScope(shield=self._caller_cancelled is not None):
                    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError as error:
                self._caller_cancelled = self._caller_cancelled or error
                self.cancel()

    def end(self, expired: Limit | None) -> End[Result, Limit]:
        """Return the end of the race, or raise the cancellation of the caller."""
        ended = self.task.done() and not self.task.cancelled()
        # Work in time that has come to an end is not lost, even if the caller was cancelled meanwhile.
        # Work that was late was cancelled by the race itself, so how it ended says nothing of the caller.
        in_time = expired is None
        if (in_time and not ended) or (not in_time and self._caller_cancelled is not None):
            raise self._caller_cancelled or asyncio.CancelledError
        value, error = self.task.result() if ended else (None, None)
        return End(value=value, error=error, expired=expired)


async def _outcome(
    work: Coroutine[Any, Any, Result], context: Context
) -> tuple[Result | None, BaseException | None]:
    """Return the result and the error of `work`, of which one is None.

    As a value, because an error that ends programs would end the loop if a task raised it.
    """
    try:
        return await in_context(context, work), None
    except asyncio.CancelledError as error:
        if cancellations():
            raise
        return None, error  # from something that the work awaits: nobody has cancelled the work itself
    except BaseException as error:
        return None, error


_left_alone: set[asyncio.Task[Any]] = set()


def _leave_alone(task: asyncio.Task[Any], called: str) -> None:
    """Warn that nobody waits for `task` any more."""
    _left_alone.add(task)  # the loop holds it weakly, so it could be collected while it runs
    task.add_done_callback(_left_alone.discard)
    logger.warning(
        "%s still runs %g seconds after it was cancelled because its time was up. What it returns and what "
        "it writes to the stream will be dropped. Let CancelledError end the node.",
        called,
        STOP_SECONDS,
    )
