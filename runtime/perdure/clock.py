"""The injected sources of time and of checkpoint ids.

A run never reads the system's clock or draws an id directly.
"""

from __future__ import annotations

import os
import re
import time
from typing import Final, Protocol

import anyio

from perdure.errors import InvalidPayloadError

_UUID6: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-6[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
_GREGORIAN_TICKS: Final = 0x01B21DD213814000
"""100 ns ticks between the start of UUID time, 1582-10-15, and 1970-01-01 (RFC 9562, 5.1)."""


class Clock(Protocol):
    """The engine's view of time."""

    def time_ns(self) -> int:
        """Return nanoseconds since the Unix epoch. They may jump."""
        ...

    def monotonic(self) -> float:
        """Return seconds on a clock that never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for this many seconds of `monotonic`."""
        ...


class SystemClock:
    """The machine's clock."""

    __slots__ = ()

    time_ns = staticmethod(time.time_ns)
    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)


SYSTEM_CLOCK: Final = SystemClock()


class IdSource:
    """A source of checkpoint ids: UUIDv6 texts in strictly ascending order.

    The order does not depend on the clock. If the clock stands still or goes back, the next id takes the
    time of the last id plus one tick. A run and its child graphs share one source. `advance_past` sets it
    above the greatest id of the thread.
    """

    __slots__ = ("_clock", "_suffix", "_ticks")

    def __init__(self, clock: Clock = SYSTEM_CLOCK, *, suffix: str | None = None) -> None:
        self._clock = clock
        self._ticks = 0
        self._suffix = suffix if suffix is not None else _random_suffix()

    def next(self) -> str:
        """Draw the next id."""
        ticks = self._clock.time_ns() // 100 + _GREGORIAN_TICKS
        if ticks <= self._ticks:
            ticks = self._ticks + 1
        self._ticks = ticks
        digits = f"{ticks:015x}"
        return f"{digits[:8]}-{digits[8:12]}-6{digits[12:]}-{self._suffix}"

    def advance_past(self, checkpoint_id: str) -> None:
        """Make all later ids greater than `checkpoint_id`.

        Raises:
            InvalidPayloadError: `checkpoint_id` is not a UUIDv6, so no id of this source can follow it.
        """
        if not _UUID6.fullmatch(checkpoint_id):
            raise InvalidPayloadError(
                f"The thread holds a checkpoint whose id {checkpoint_id!r} is not a UUIDv6, so no run can "
                "follow it. Draw the ids of checkpoints that you store yourself from perdure.clock.IdSource."
            )
        ticks = int(checkpoint_id[:8] + checkpoint_id[9:13] + checkpoint_id[15:18], 16)
        self._ticks = max(self._ticks, ticks)


class LocalIds(IdSource):
    """Ids for a run that stores nothing: ascending, and unique only within the run."""

    __slots__ = ("_drawn",)

    def __init__(self) -> None:
        self._drawn = 0

    def next(self) -> str:
        self._drawn += 1
        return f"local-{self._drawn:08d}"


def _random_suffix() -> str:
    """Return a random clock sequence and node with the UUID's variant bits. They tell sources apart."""
    digits = os.urandom(8).hex()
    return f"{'89ab'[int(digits[0], 16) & 3]}{digits[1:4]}-{digits[4:]}"
