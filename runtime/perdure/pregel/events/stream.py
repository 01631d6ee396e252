"""Streams: a run in a task of its own, whose events an iterator yields."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from perdure.aio.cancellation import outlast
from perdure.pregel.events.buffer import Buffer, Reader


async def stream(
    buffer: Buffer, reader: Reader, run: Callable[[], Coroutine[Any, Any, Any]]
) -> AsyncIterator[Any]:
    """Run in a task of its own and yield its events; leaving the iterator cancels the run and waits for it.

    The iterator itself is never inside a cancel scope: it may be left at any yield, and closed from
    another task.
    """

    async def host() -> BaseException | None:
        try:
            await run()
        except (KeyboardInterrupt, SystemExit) as ending:
            return ending  # as a value: raised in a task of its own, it would end the loop
        finally:
            buffer.close()
        return None

    buffer.attach()
    task = asyncio.create_task(host())
    try:
        while batch := await reader.batch():
            while batch:
                yield batch.popleft()
        if (ending := await task) is not None:
            raise ending
    finally:
        buffer.close()  # nobody reads any more: a thread that waits for room need not
        task.cancel()
        await outlast(task)
