"""A clock that stands still until it is told to go on."""

from __future__ import annotations

import anyio


class FakeClock:
    """A clock for tests: `advance` moves it, and wakes the tasks that have slept long enough."""

    def __init__(self, epoch_ns: int = 1_700_000_000_000_000_000) -> None:
        self._epoch_ns = epoch_ns
        self._elapsed_ns = 0
        self._moved = anyio.Event()

    def time_ns(self) -> int:
        return self._epoch_ns + self._elapsed_ns

    def monotonic(self) -> float:
        return self._elapsed_ns / 1e9

    async def sleep(self, seconds: float) -> None:
        until = self._elapsed_ns + round(seconds * 1e9)
        while self._elapsed_ns < until:
            await self._moved.wait()

    def advance(self, seconds: float) -> None:
        """Let so many seconds pass."""
        self._elapsed_ns += round(seconds * 1e9)
        moved, self._moved = self._moved, anyio.Event()
        moved.set()

    def set_back(self, seconds: float) -> None:
        """Let the wall clock, not the monotonic one, jump back."""
        self._epoch_ns -= round(seconds * 1e9)
