"""Async calls made from threads that run no event loop.

Such a call is made on a loop that runs elsewhere: with a saver that lives on a loop, there; below a sync
node, on that of the node's run; else on one that this process keeps for it. What comes of the call crosses
between the threads as a value, whatever it is.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar, copy_context
from typing import Any, Final, TypeVar

from perdure.context import current_task
from perdure.errors import SyncCallError

T = TypeVar("T")

LOOK_SECONDS: Final = 1.0
"""How often a call that waits looks whether the loop that it is made on still runs."""

_END: Final = object()


def running_loop() -> asyncio.AbstractEventLoop:
    """The event loop of the caller."""
    return asyncio.get_running_loop()


def loop_here() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread, if one does."""
    try:
        return running_loop()
    except RuntimeError:
        return None


class Home:
    """The loop of the run that a sync node belongs to. What the node calls there ends with the node.

    Attributes:
        closed: whether the node was cancelled, so that nothing more may begin.
    """

    __slots__ = ("_calls", "_streams", "closed", "loop")

    def __init__(self) -> None:
        self.loop = running_loop()
        self.closed = False
        self._calls: set[asyncio.Task[None]] = set()
        self._streams: dict[Any, asyncio.AbstractEventLoop] | None = None

    @property
    def busy(self) -> bool:
        """Whether something that was begun has not ended."""
        return bool(self._calls)

    def hold(self, call: asyncio.Task[None]) -> None:
        """A call was begun, on this loop or on that of a saver."""
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        if self.closed:  # meanwhile, by another thread than that of the call's loop
            call.cancel()

    def hold_stream(self, iterator: Any, loop: asyncio.AbstractEventLoop) -> None:
        """A stream was begun, which goes on while none of its items is asked for."""
        if self._streams is None:
            self._streams = {}
        self._streams[iterator] = loop

    def drop_stream(self, iterator: Any) -> None:
        if self._streams is not None:
            self._streams.pop(iterator, None)

    def close(self) -> None:
        """Cancel what was begun, and let nothing begin."""
        self.closed = True
        for call in tuple(self._calls):
            self._have(call.get_loop(), call.cancel)
        for iterator, loop in tuple((self._streams or {}).items()):
            self._have(loop, functools.partial(self._leave, iterator, loop))

    def _have(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
        if loop is self.loop:
            callback()
        else:
            with suppress(RuntimeError):  # closed: what ran there is gone
                loop.call_soon_threadsafe(callback)

    def _leave(self, iterator: Any, loop: asyncio.AbstractEventLoop) -> None:
        if not iterator.ag_running:  # else its call was cancelled, which ends it
            closing = loop.create_task(iterator.aclose())
            self._calls.add(closing)
            closing.add_done_callback(self._calls.discard)


home: ContextVar[Home | None] = ContextVar("perdure_home", default=None)


def items_of(iterator: Any, name: str, loop: asyncio.AbstractEventLoop) -> Iterator[Any]:
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
                _leave(iterator, name, loop)


def _leave(iterator: Any, name: str, loop: asyncio.AbstractEventLoop) -> None:
    if loop_here() is not None:  # collected as garbage, by a thread that must not wait
        _tell(loop, lambda: _closing(loop.create_task(iterator.aclose())), name)
    else:
        call_on(iterator.aclose, name, loop)


_closings: set[asyncio.Task[None]] = set()


def _closing(task: asyncio.Task[None]) -> None:
    """A loop holds its tasks weakly."""
    _closings.add(task)
    task.add_done_callback(_closings.discard)


def loop_for(name: str, loop: asyncio.AbstractEventLoop | None) -> asyncio.AbstractEventLoop:
    """Where a call is made that belongs on `loop`; None: that may be made anywhere."""
    sync_name = name.removeprefix("a")
    if loop_here() is not None:
        raise SyncCallError(
            f"`{sync_name}` was called where an event loop runs, which it would hold up: use `{name}` there."
        )
    if loop is not None:
        return loop
    below = home.get()
    return _portal.loop() if below is None else below.loop


def call_on(make: Callable[[], Awaitable[T]], name: str, loop: asyncio.AbstractEventLoop) -> T:
    """Make a call on `loop`, and wait for what comes of it."""
    below, sync_name = home.get(), name.removeprefix("a")
    outcome: Future[tuple[Any, BaseException | None]] = Future()
    begun: list[asyncio.Task[None]] = []

    async def run() -> None:
        try:
            outcome.set_result((await make(), None))
        except BaseException as error:
            outcome.set_result((None, error))

    context = copy_context()

    def begin() -> None:
        if below is not None and below.closed:
            outcome.set_result((None, asyncio.CancelledError()))
            return
        begun.append(loop.create_task(run(), context=context))
        begun[0].add_done_callback(ended)
        if below is not None:
            below.hold(begun[0])

    def ended(_: object) -> None:
        if not outcome.done():  # cancelled before it took its first step
            outcome.set_result((None, asyncio.CancelledError()))

    try:
        _tell(loop, begin, sync_name)
        value, raised = _result(outcome, loop, sync_name)
    except SyncCallError:
        raise
    except BaseException:  # this thread was interrupted while it waited; again, it waits no longer
        with suppress(SyncCallError):
            _tell(loop, lambda: [task.cancel() for task in begun], sync_name)
            _result(outcome, loop, sync_name)
        raise
    if raised is not None:
        try:
            raise raised
        finally:
            del raised, outcome  # or the error would hold itself, by way of this frame
    return value  # type: ignore[no-any-return]


def _tell(loop: asyncio.AbstractEventLoop, callback: Callable[[], object], name: str) -> None:
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError as error:
        raise _gone(name) from error


def _result(outcome: Future[Any], loop: asyncio.AbstractEventLoop, name: str) -> Any:
    while True:
        try:
            return outcome.result(LOOK_SECONDS)
        except TimeoutError:
            if not loop.is_running() and not outcome.done():
                raise _gone(name) from None


def _gone(name: str) -> SyncCallError:
    return SyncCallError(
        f"`{name}` belongs to an event loop that has stopped: that in which its saver was opened, or which "
        "runs the node that called it. Open the saver where it is used for as long as it is."
    )


class _Portal:
    """One event loop for the process, in a thread of its own; another one after a fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._thread is None or not self._thread.is_alive():
                started: Future[asyncio.AbstractEventLoop] = Future()
                self._loop = None  # if this is interrupted, none is better than that which ended
                self._thread = threading.Thread(
                    target=_serve, args=(started,), name="perdure sync face", daemon=True
                )
                self._thread.start()
                self._loop = started.result()
            return self._loop


def _serve(started: Future[asyncio.AbstractEventLoop]) -> None:
    async def serve() -> None:
        started.set_result(running_loop())
        await running_loop().create_future()

    asyncio.run(serve())


_portal = _Portal()


def _forget() -> None:
    global _portal  # noqa: PLW0603  # a forked process has the object, but not its thread
    _portal = _Portal()
    home.set(None)  # nor the thread that runs the loop of a node that forks
    current_task.set(None)  # nor is it part of that node's run


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
