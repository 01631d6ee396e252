"""Sync nodes, in threads that cannot be stopped."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextvars import ContextVar
from inspect import isawaitable
from typing import Any, Final

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

logger = logging.getLogger("perdure")

THREAD_SECONDS: Final = 5.0
"""How long a cancelled sync node may take to return before it is left alone."""

WORKER_THREADS: Final = 40
"""How many sync nodes may run at once in one event loop, at each depth of graphs run by sync nodes."""

_thread_depth: ContextVar[int] = ContextVar("perdure_thread_depth", default=0)
_limiters: RunVar[dict[int, anyio.CapacityLimiter]] = RunVar("perdure_thread_limiters")


async def in_thread(action: Callable[[Any], Any], argument: Any) -> Any:
    """Call a sync node in a worker thread.

    A thread cannot be stopped. Cancelled, this waits THREAD_SECONDS for it to end; then it is left
    alone with a warning, and its result is not read.
    """
    began, ended = threading.Event(), threading.Event()

    def call() -> Any:
        began.set()
        try:
            return action(argument)
        finally:
            ended.set()

    try:
        result = await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=_thread_limiter())
    except anyio.get_cancelled_exc_class():
        if began.is_set():
            await _let_end(ended, action)
        raise
    return await result if isawaitable(result) else result


async def _let_end(ended: threading.Event, action: Callable[[Any], Any]) -> None:
    """Look now and then whether the thread has ended: joined, it could not use this loop to end."""
    with anyio.move_on_after(THREAD_SECONDS, shield=True):
        while not ended.is_set():  # noqa: ASYNC110  # nothing in the thread can set an event of this loop
            await anyio.sleep(0.01)
    if not ended.is_set():
        logger.warning(
            "The sync node %r still runs in its thread %g seconds after it was cancelled. Its result will "
            "not be read, but what it does besides returning it still happens.",
            action,
            THREAD_SECONDS,
        )


def _thread_limiter() -> anyio.CapacityLimiter:
    """The bound on worker threads, one per depth: a sync node that runs a graph waits for deeper ones."""
    depth = _thread_depth.get()
    _thread_depth.set(depth + 1)  # in the task's own context, of which the thread gets a copy
    limiters = _limiters.get(None)
    if limiters is None:
        limiters = {}
        _limiters.set(limiters)
    return limiters.setdefault(depth, anyio.CapacityLimiter(WORKER_THREADS))
