"""A signal between an event loop and the threads beside it."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

LOOK_SECONDS: Final = 1.0
"""Seconds after which a thread that waits for a bell looks again whether the loop of the bell runs."""


class Bell:
    """A signal that something has changed, given and awaited on the loop and in threads alike.

    The bell says that it is worth looking again, not what there is to see. So change first, then ring;
    and look before every wait:

        while not ready():
            await bell.wait()

    A ring is never lost: one that nobody waits for ends the next wait at once.

    Attributes:
        on_loop: True in the thread of the loop, where nothing may block.
    """

    __slots__ = ("_loop", "_rung", "_thread", "_threads", "_waiting")

    def __init__(self) -> None:
        """Belong to the loop that runs here."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._rung = False
        self._waiting: list[asyncio.Future[None]] = []  # on the loop
        self._threads: deque[threading.Event] = deque()

    @property
    def on_loop(self) -> bool:
        return threading.get_ident() == self._thread

    def ring(self) -> None:
        """Wake all who wait, from whichever thread.

        Called in another thread than the loop's, this goes through the loop at most once until somebody
        waits there again, however often it is called.
        """
        while self._threads:
            self._wake_thread()
        if self._rung:
            return  # the loop was told, or who waits next there looks again anyway
        if self.on_loop:
            self._wake_loop()
            return
        # First the flag, then the call that may reset it. The other way round the flag could be left set
        # although somebody waits, and each further ring would believe the loop to be told.
        self._rung = True
        with suppress(RuntimeError):  # the loop is closed, and nobody waits there
            self._loop.call_soon_threadsafe(self._wake_loop)

    def _wake_thread(self) -> None:
        with suppress(IndexError):  # another thread that rings has woken the last
            self._threads.popleft().set()

    def _wake_loop(self) -> None:
        """Wake who waits on the loop, or let the next wait there end at once; in the loop's thread."""
        waiting, self._waiting = self._waiting, []
        self._rung = True
        for future in waiting:
            if not future.done():  # as it is when who waited was cancelled
                future.set_result(None)
                self._rung = False

    async def wait(self) -> None:
        """Wait on the loop until the bell rings; if it has rung since the last wait, return at once."""
        if self._rung:
            self._rung = False
            return
        future = self._loop.create_future()
        self._waiting.append(future)
        try:
            await future
        finally:
            if future in self._waiting:  # cancelled, not woken
                self._waiting.remove(future)

    def wait_in_thread(self, ready: Callable[[], bool]) -> bool:
        """Block a thread until `ready`, which is asked at first and then whenever the bell has rung.

        Returns:
            False if the loop has stopped meanwhile, because then nobody may be left to ring.

        Raises:
            RuntimeError: called in the thread of the loop, which would wait for itself.
        """
        if self.on_loop:
            raise RuntimeError("A thread waits for a bell on whose loop it is. Await `wait` there.")
        woken = threading.Event()
        while not ready():
            # Asked again once this thread is listed: whoever changes the answer after that finds it.
            self._threads.append(woken)
            if ready():
                return True
            while not woken.wait(LOOK_SECONDS):
                if not self._loop.is_running():
                    return False
            woken.clear()
        return True
