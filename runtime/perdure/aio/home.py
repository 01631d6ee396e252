"""The event loop that the sync calls of a node are made on."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Any


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop that runs in this thread; RuntimeError if there is none."""
    return asyncio.get_running_loop()


def loop_here() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread, if there is one."""
    try:
        return running_loop()
    except RuntimeError:
        return None


class Home:
    """The loop of the run that a sync node belongs to, and what the node has begun by its sync calls.

    Calls are begun on the loop of the run, or on that of a saver; both end with the node.

    Attributes:
        closed: True once the node was cancelled, so that nothing else may begin.
    """

    __slots__ = ("_calls", "_streams", "closed", "loop")

    def __init__(self) -> None:
        """Belong to the loop that runs here."""
        self.loop = running_loop()
        self.closed = False
        self._calls: set[asyncio.Task[None]] = set()
        self._streams: dict[Any, asyncio.AbstractEventLoop] | None = None

    @property
    def busy(self) -> bool:
        """True while something that was begun has not ended."""
        return bool(self._calls)

    def hold(self, call: asyncio.Task[None]) -> None:
        """Take note of a call, in the thread of the loop that it was begun on."""
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        # `close` runs on the loop of the run. If it has run while another loop began this call, it has
        # not seen it.
        if self.closed:
            call.cancel()

    def hold_stream(self, iterator: Any, loop: asyncio.AbstractEventLoop) -> None:
        """Take note of a stream, whose run goes on while none of its items is asked for."""
        if self._streams is None:
            self._streams = {}
        self._streams[iterator] = loop

    def drop_stream(self, iterator: Any) -> None:
        """Forget a stream that has ended or was closed."""
        if self._streams is not None:
            self._streams.pop(iterator, None)

    def close(self) -> None:
        """Cancel all that was begun, each on its own loop, and let nothing else begin."""
        self.closed = True  # first, so that what begins from now on cancels itself
        for call in tuple(self._calls):
            self._run_on(call.get_loop(), call.cancel)
        for iterator, loop in tuple((self._streams or {}).items()):
            self._run_on(loop, functools.partial(self._close_stream, iterator, loop))

    def _run_on(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
        if loop is self.loop:
            callback()
            return
        with suppress(RuntimeError):  # that loop is closed, and what ran there is gone
            loop.call_soon_threadsafe(callback)

    def _close_stream(self, iterator: Any, loop: asyncio.AbstractEventLoop) -> None:
        if iterator.ag_running:
            return  # an item is being waited for, by a call that was cancelled: that closes the stream
        closing = loop.create_task(iterator.aclose())
        self._calls.add(closing)  # so that the home is busy until it has ended
        closing.add_done_callback(self._calls.discard)


home: ContextVar[Home | None] = ContextVar("perdure_home", default=None)
"""The home of the sync node that runs here; None in any other code."""
