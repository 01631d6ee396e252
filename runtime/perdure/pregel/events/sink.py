"""Events and their shapes; the host task that owns a streamed run."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, Final, get_args

from perdure.aio.cancellation import outlast
from perdure.data import StreamMode, StreamWriter
from perdure.errors import GraphValidationError
from perdure.pregel.plan.names import names_of

STREAM_MODES: Final[tuple[StreamMode, ...]] = get_args(StreamMode)
BUFFER_SIZE: Final = 64
"""How many events may wait when a superstep begins, beside those that the reader has taken."""


class Events:
    """What a run tells its reader: a buffer that the run fills and the reader empties.

    Putting never waits; the run waits for room between supersteps.
    """

    __slots__ = (
        "_buffer",
        "_filled",
        "_loop",
        "_room",
        "_tagged",
        "_thread",
        "closed",
        "custom",
        "updates",
        "values",
    )

    def __init__(self, modes: StreamMode | Sequence[StreamMode]) -> None:
        chosen = names_of(modes)
        for mode in chosen:
            if mode not in STREAM_MODES:
                raise GraphValidationError(f"Unknown stream_mode {mode!r}. Known: {', '.join(STREAM_MODES)}.")
        self.values = "values" in chosen
        self.updates = "updates" in chosen
        self.custom = "custom" in chosen
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._tagged = not isinstance(modes, str)
        self._buffer: deque[Any] = deque()
        self._filled: asyncio.Event = asyncio.Event()
        self._room: asyncio.Event = asyncio.Event()
        self.closed = False

    def put(self, mode: StreamMode, payload: Any) -> None:
        self._buffer.append((mode, payload) if self._tagged else payload)
        self._filled.set()

    def writer(self) -> StreamWriter:
        """What puts "custom" events, from the run's own loop or from a thread of one of its nodes."""

        def write(event: Any) -> None:
            if threading.get_ident() == self._thread:
                self.put("custom", event)
            elif self._loop is not None:
                self._loop.call_soon_threadsafe(self.put, "custom", event)

        return write

    def attach(self) -> None:
        """The run is on this loop, in this thread."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()

    def close(self) -> None:
        """There will be no more events."""
        self.closed = True
        self._filled.set()

    async def room(self) -> None:
        """Wait until less than BUFFER_SIZE events wait to be taken."""
        while len(self._buffer) >= BUFFER_SIZE:
            self._room.clear()
            await self._room.wait()

    async def batch(self) -> deque[Any]:
        """Everything put since the last batch, at least one event; empty only at the end."""
        while not self._buffer and not self.closed:
            self._filled.clear()
            await self._filled.wait()
        batch, self._buffer = self._buffer, deque()
        self._room.set()
        return batch


async def stream(events: Events, run: Callable[[], Coroutine[Any, Any, Any]]) -> AsyncIterator[Any]:
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
            events.close()
        return None

    events.attach()
    task = asyncio.create_task(host())
    try:
        while batch := await events.batch():
            while batch:
                yield batch.popleft()
        if (ending := await task) is not None:
            raise ending
    finally:
        task.cancel()
        await outlast(task)
