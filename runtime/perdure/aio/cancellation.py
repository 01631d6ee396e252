"""Asyncio tasks that end when they should: none outlives what it was started for, whoever is cancelled.

Beside the stream's host task and the sync face, all that has to know asyncio itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import anyio

from perdure.clock import Clock

logger = logging.getLogger("perdure")

Result = TypeVar("Result")
Limit = TypeVar("Limit")

CancelledError = asyncio.CancelledError

STOP_SECONDS: Final = 5.0
"""How long a node whose time is up may take to clean up before it is left alone."""


class Children:
    """Plain asyncio tasks that live no longer than the `ended` that waits for them.

    A child of an anyio task group costs 20 to 40 microseconds more, which in a wide fan-out is most
    of what a task costs.

    Attributes:
        stopping: whether they are to end, and nothing new is to begin.
    """

    __slots__ = ("_children", "_ended", "_left", "stopping")

    def __init__(self) -> None:
        self.stopping = False
        self._children: list[asyncio.Task[None]] = []
        self._ended = asyncio.Event()
        self._left = 0

    def start(self, coroutine: Coroutine[Any, Any, None], context: Context) -> None:
        child = asyncio.create_task(coroutine, context=context)
        child.add_done_callback(self._one_ended)
        self._children.append(child)
        self._left += 1

    def _one_ended(self, _: asyncio.Task[None]) -> None:
        self._left -= 1
        if self._left == 0:
            self._ended.set()

    def stop(self) -> None:
        """Cancel all children but the one that calls this."""
        self.stopping = True
        current = asyncio.current_task()
        for child in self._children:
            if child is not current:
                child.cancel()

    async def ended(self) -> None:
        """Wait until all have ended; cancelled itself, cancel them and still wait for them."""
        cancelled: asyncio.CancelledError | None = None
        while self._left:
            try:
                with anyio.CancelScope(shield=cancelled is not None):
                    await self._ended.wait()
            except asyncio.CancelledError as error:
                cancelled = error
                self.stop()
        if cancelled is not None:
            raise cancelled
        for child in self._children:
            if not child.cancelled():
                child.result()


@dataclass(slots=True, kw_only=True)
class End(Generic[Result, Limit]):
    """How a race ended: with what the work came to, or after which limit; None if it was within all."""

    value: Result | None = None
    error: BaseException | None = None
    expired: Limit | None = None

    def result(self) -> Result:
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

    Either way it has ended when this returns, unless it takes more than STOP_SECONDS to be cancelled:
    then it is left alone, with a warning. Who cancels this, cancels the work.
    """
    body = asyncio.create_task(_outcome(work), context=context)
    timer = None if expiry is None else asyncio.create_task(expiry)
    expired: Limit | None = None
    try:
        cancelled = await _first_ended(body, timer)
        if not body.done():
            if timer is not None and not timer.cancelled():
                expired = timer.result()
                if on_expired is not None:
                    on_expired(expired)
            cancelled = await _stop(body, clock, called) or cancelled
    finally:
        if timer is not None:
            timer.cancel()
            await outlast(timer)
    ended = body.done() and not body.cancelled()
    if (cancelled is not None) if expired is not None else not ended:
        raise cancelled or asyncio.CancelledError
    value, error = body.result() if ended else (None, None)
    return End(value=value, error=error, expired=expired)


async def _stop(body: asyncio.Task[Any], clock: Clock, called: str) -> asyncio.CancelledError | None:
    """Cancel `body` and wait, within bounds, for its end. Returns a cancellation that came meanwhile."""
    body.cancel()
    patience = asyncio.create_task(clock.sleep(STOP_SECONDS))
    try:
        cancelled = await _first_ended(body, patience)
    finally:
        patience.cancel()
        await outlast(patience)
    if not body.done():
        _leave_alone(body, called)
    return cancelled


async def _outcome(work: Coroutine[Any, Any, Result]) -> tuple[Result | None, BaseException | None]:
    """What comes of `work`, as values: what ends programs would end the loop, raised in a task of its own."""
    try:
        return await work, None
    except asyncio.CancelledError as error:
        if cancellations():
            raise
        return None, error  # a library's, which nobody asked for
    except BaseException as error:
        return None, error


async def _first_ended(
    body: asyncio.Task[Any], timer: asyncio.Task[Any] | None
) -> asyncio.CancelledError | None:
    """Wait until one of the two has ended. A cancellation is passed on to `body` and returned."""
    cancelled: asyncio.CancelledError | None = None
    both = (body,) if timer is None else (body, timer)
    while not any(task.done() for task in both):
        try:
            with anyio.CancelScope(shield=cancelled is not None):
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError as error:
            cancelled = error
            body.cancel()
    return cancelled


_left_alone: set[asyncio.Task[Any]] = set()


def _leave_alone(body: asyncio.Task[Any], called: str) -> None:
    """Nobody waits for `body` any more; but a task that nobody holds could be collected while it runs."""
    _left_alone.add(body)
    body.add_done_callback(_left_alone.discard)
    logger.warning(
        "%s still runs %g seconds after it was cancelled because its time was up. What it returns and what "
        "it writes to the stream will be dropped. Let CancelledError end the node.",
        called,
        STOP_SECONDS,
    )


Service = Callable[[], Awaitable[None]]


class Attendants:
    """Services that run beside something, in plain asyncio tasks, until they are dismissed.

    Every run that stores anything has two of them, which mostly do nothing: in a task group, with its
    scopes and what it notes about cancelling them, they would cost several times what they do here.
    """

    __slots__ = ("_on_failure", "_tasks")

    def __init__(self, services: Iterable[Service], on_failure: Callable[[Exception], None]) -> None:
        self._on_failure = on_failure
        self._tasks = [asyncio.create_task(self._serve(service)) for service in services]

    async def _serve(self, service: Service) -> None:
        try:
            await service()
        except Exception as failure:
            self._on_failure(failure)

    async def dismiss(self) -> None:
        """Cancel them all and wait until they have ended."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            await outlast(task)


async def outlast(task: asyncio.Task[Any]) -> None:
    """Wait until a task has ended, however often the waiting is cancelled; that is raised when it has."""
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError as error:
                cancelled = error
    if not task.cancelled():
        task.exception()  # read, lest it be reported as forgotten
    if cancelled is not None:
        raise cancelled


async def clean_up(work: Callable[[], Awaitable[None]], seconds: float) -> None:
    """Do `work` to its end even if this is cancelled, and again; TimeoutError when it takes too long.

    A shield of anyio holds off its own scopes, not what calls `Task.cancel`: so in a task of its own.
    """

    async def bounded() -> None:
        with anyio.fail_after(seconds):
            await work()

    task = asyncio.create_task(bounded())
    await outlast(task)
    if task.cancelled():  # as all tasks are when the loop shuts down
        await bounded()
    else:
        task.result()


def cancellations() -> int:
    """How often this asyncio task was cancelled and has not taken it back."""
    current = asyncio.current_task()
    return 0 if current is None else current.cancelling()


Wakings = list[asyncio.TaskGroup]
"""Groups that have failed while they waited for their children, and have cancelled their own task to be told.

Before Python 3.13 they do not take that back, and for ever after the task looks as if somebody had
cancelled it.
"""


def note_waking(wakings: Wakings, coroutine: Coroutine[Any, Any, Any], thrown: BaseException) -> None:
    """`thrown` is about to be thrown at `coroutine`: note if a group's end there waits for it."""
    if isinstance(thrown, CancelledError):
        group = _waking(coroutine)
        if group is not None and all(group is not known for known in wakings):
            wakings.append(group)


def take_back(wakings: Wakings) -> None:
    """Do what the groups have left out, in the task that they woke."""
    current = asyncio.current_task()
    if current is not None:
        for _ in wakings:
            current.uncancel()


def _waking(coroutine: Any) -> asyncio.TaskGroup | None:
    """The group in whose end a coroutine waits, if the group has cancelled its own task."""
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None)
        if frame is not None and frame.f_code is asyncio.TaskGroup.__aexit__.__code__:
            group: asyncio.TaskGroup = frame.f_locals["self"]
            return group if group._parent_cancel_requested else None  # type: ignore[attr-defined]
        coroutine = getattr(coroutine, "cr_await", None)
    return None
