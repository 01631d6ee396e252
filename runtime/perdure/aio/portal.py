"""Async calls made from threads that run no event loop.

Such a call is made on a loop that runs in another thread: that of its saver, if the saver lives on one;
else, below a sync node, that of the node's run; else one that this process keeps for such calls. The
outcome crosses between the threads as a value, whatever it is.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Final, Generic, TypeVar

from perdure.aio.home import home, loop_here, running_loop
from perdure.context import current_task
from perdure.errors import SyncCallError

T = TypeVar("T")

LOOK_SECONDS: Final = 1.0
"""Seconds after which a thread that waits for a call looks again whether the loop of the call runs."""

_END: Final = object()


def loop_for(name: str, loop: asyncio.AbstractEventLoop | None) -> asyncio.AbstractEventLoop:
    """Return the loop on which to make a call.

    Args:
        name: the name of the async method that is called.
        loop: the loop that the call belongs on; None if any will do.

    Raises:
        SyncCallError: a loop runs in this thread, which the call would hold up.
    """
    if loop_here() is not None:
        raise SyncCallError(
            f"`{_sync(name)}` was called where an event loop runs, which it would hold up: "
            f"use `{name}` there."
        )
    if loop is not None:
        return loop
    below = home.get()
    return _portal.loop() if below is None else below.loop


def call_on(make: Callable[[], Awaitable[T]], name: str, loop: asyncio.AbstractEventLoop) -> T:
    """Make an async call on `loop`, and block this thread until it has ended.

    Raises:
        SyncCallError: the loop has stopped, or stops meanwhile.
    """
    call, sync_name = _Call(make, loop), _sync(name)
    try:
        _tell(loop, call.begin, sync_name)
        value, raised = _result(call.outcome, loop, sync_name)
    except SyncCallError:
        raise
    except BaseException:
        # This thread was interrupted while it waited, as by Ctrl-C. The call must not go on without it,
        # so it is cancelled and waited for. A second interruption ends that wait as well.
        with suppress(SyncCallError):
            _tell(loop, call.cancel, sync_name)
            _result(call.outcome, loop, sync_name)
        raise
    if raised is not None:
        try:
            raise raised
        finally:
            del raised, call  # or the error would hold itself, by way of this frame
    return value  # type: ignore[return-value]  # None only if that is the result


class _Call(Generic[T]):
    """One call on a loop in another thread.

    Attributes:
        outcome: the result and the error of the call, of which one is None. As values, because an error
            that ends programs would end the loop if a task raised it.
    """

    __slots__ = ("_context", "_home", "_loop", "_make", "_task", "outcome")

    def __init__(self, make: Callable[[], Awaitable[T]], loop: asyncio.AbstractEventLoop) -> None:
        self.outcome: Future[tuple[T | None, BaseException | None]] = Future()
        self._make = make
        self._loop = loop
        self._home = home.get()
        self._context = copy_context()  # the caller's: a call below a node is part of the node's run
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Begin the call, in the thread of the loop."""
        if self._home is not None and self._home.closed:
            self._never_begun()
            return
        self._task = self._loop.create_task(self._run(), context=self._context)
        self._task.add_done_callback(self._ended)
        if self._home is not None:
            self._home.hold(self._task)

    def cancel(self) -> None:
        """Cancel the call, in the thread of the loop."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            self.outcome.set_result((await self._make(), None))
        except BaseException as error:
            self.outcome.set_result((None, error))
        finally:
            del self  # or the error would hold itself, by way of this frame

    def _ended(self, _: object) -> None:
        if not self.outcome.done():  # cancelled before its first step, the task runs none of our code
            self._never_begun()

    def _never_begun(self) -> None:
        self.outcome.set_result((None, asyncio.CancelledError()))


def items_of(iterator: Any, name: str, loop: asyncio.AbstractEventLoop) -> Iterator[Any]:
    """Yield the items of an async iterator that lives on `loop`; closed early, close that."""

    async def following() -> Any:
        return await anext(iterator, _END)

    below = home.get()
    if below is not None:
        below.hold_stream(iterator, loop)
    try:
        while (item := call_on(following, name, loop_for(name, loop))) is not _END:
            yield item
    finally:
        if below is not None:
            below.drop_stream(iterator)
        if below is None or not below.closed:  # else it was closed with the node
            with suppress(SyncCallError):  # its loop is gone, and with it the run
                _close(iterator, name, loop)


def _close(iterator: Any, name: str, loop: asyncio.AbstractEventLoop) -> None:
    if loop_here() is None:
        call_on(iterator.aclose, name, loop)
    else:  # the generator was collected as garbage in a thread whose loop must not be held up
        _tell(loop, lambda: _hold(loop.create_task(iterator.aclose())), _sync(name))


_closings: set[asyncio.Task[None]] = set()


def _hold(closing: asyncio.Task[None]) -> None:
    """Keep a task that nobody waits for until it has ended: a loop holds its tasks weakly."""
    _closings.add(closing)
    closing.add_done_callback(_closings.discard)


def _sync(name: str) -> str:
    """Return the name of the sync form of an async method."""
    return name.removeprefix("a")


def _tell(loop: asyncio.AbstractEventLoop, callback: Callable[[], object], name: str) -> None:
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError as error:
        raise _gone(name) from error


def _result(outcome: Future[T], loop: asyncio.AbstractEventLoop, name: str) -> T:
    """Wait for an outcome, but not for one that a stopped loop can no longer bring about."""
    while True:
        try:
            return outcome.result(LOOK_SECONDS)
        except TimeoutError:
            # The loop may have stopped right after it set the outcome.
            if not loop.is_running() and not outcome.done():
                raise _gone(name) from None


def _gone(name: str) -> SyncCallError:
    return SyncCallError(
        f"`{name}` belongs to an event loop that has stopped: that in which its saver was opened, or which "
        "runs the node that called it. Open the saver where it is used for as long as it is."
    )


class _Portal:
    """The event loop that this process keeps for sync calls, in a thread of its own."""

    __slots__ = ("_lock", "_loop", "_thread")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop, which is started with the first call, and again if its thread has ended."""
        with self._lock:  # threads that call at once share one loop
            if self._loop is None or self._thread is None or not self._thread.is_alive():
                started: Future[asyncio.AbstractEventLoop] = Future()
                # Interrupted below, the next call starts another. The one that has ended would refuse.
                self._loop = None
                # A daemon, because it runs for as long as the process does.
                self._thread = threading.Thread(
                    target=_serve, args=(started,), name="perdure sync face", daemon=True
                )
                self._thread.start()
                self._loop = started.result()
            return self._loop


def _serve(started: Future[asyncio.AbstractEventLoop]) -> None:
    async def serve() -> None:
        started.set_result(running_loop())
        await running_loop().create_future()  # for ever

    asyncio.run(serve())


_portal = _Portal()


def _forget() -> None:
    """Begin anew in a forked process, which has the objects of its parent, but none of its threads."""
    global _portal  # noqa: PLW0603  # the lock of the old one may be held by a thread that is not here
    _portal = _Portal()
    # A node that forks runs on in the parent. Here there is no loop of its run, and no run to be part of.
    home.set(None)
    current_task.set(None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
