"""A run in a task of its own, read from outside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from typing import Any, Generic, NamedTuple, TypeVar

from perdure.aio.cancellation import outlast

T = TypeVar("T")


class Hosted(NamedTuple, Generic[T]):
    """A run, and the way to read it.

    Attributes:
        run: the run, which the host awaits.
        batches: returns what was told since the last batch, once there is something; an empty batch when the
            run is closed and there is nothing left.
        close: says that the run has ended, or that nobody reads it any more.
    """

    run: Callable[[], Coroutine[Any, Any, Any]]
    batches: Callable[[], Awaitable[Iterable[T]]]
    close: Callable[[], None]


async def hosted(begin: Callable[[], Hosted[T]]) -> AsyncIterator[T]:
    """Run in a task of its own, the host, and yield what it tells; then raise what the run has raised.

    The iterator may be left at any yield, and closed from another task or by the garbage collector: it
    is never inside a task group or cancel scope. Closed in whatever way, it cancels the host and waits
    for its end.

    Args:
        begin: called on the loop when the first item is asked for.
    """
    run, batches, close = begin()
    host = asyncio.create_task(_host(run, close))
    try:
        while batch := await batches():
            for item in batch:
                yield item
        if (ending := await host) is not None:
            raise ending
    finally:
        close()  # a thread that waits for its reader must not keep the host from ending
        # What has ended is not cancelled by this. A reader that is cancelled while it waits here, perhaps
        # again, still waits: nobody else knows of the host.
        host.cancel()
        await outlast(host)


async def _host(
    run: Callable[[], Coroutine[Any, Any, Any]], close: Callable[[], None]
) -> KeyboardInterrupt | SystemExit | None:
    try:
        await run()
    except (KeyboardInterrupt, SystemExit) as ending:
        return ending  # as a value: a task that raises it ends the loop
    finally:
        close()
    return None
