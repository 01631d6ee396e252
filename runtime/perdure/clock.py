"""Time and ids, injected: a run reads the clock and draws ids through these, never directly."""

from __future__ import annotations

import os
import re
import time
from typing import Final, Protocol

import anyio

from perdure.errors import InvalidPayloadError

_UUID6: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-6[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
_GREGORIAN_TICKS: Final = 0x01B21DD213814000
"""100 ns ticks between 1582-10-15, where UUID time begins, and 1970-01-01 (RFC 9562, 5.1)."""


class Clock(Protocol):
    """What the engine knows of time."""

    def time_ns(self) -> int:
        """Nanoseconds since the Unix epoch. May jump."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait that many seconds of `monotonic`."""
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
    """Draws checkpoint ids: UUIDv6 texts, each greater than all that this source gave or was shown.

    Order is the order of drawing, whatever the clock says: where the clock stands still or goes
    back, the time part of the last id plus one tick is used. One source serves a run and its child
    graphs, after it was shown the greatest id of the thread.
    """

    __slots__ = ("_clock", "_suffix", "_ticks")

    def __init__(self, clock: Clock = SYSTEM_CLOCK, *, suffix: str | None = None) -> None:
        self._clock = clock
        self._ticks = 0
        self._suffix = suffix if suffix is not None else _random_suffix()

    def next(self) -> str:
        ticks = self._clock.time_ns() // 100 + _GREGORIAN_TICKS
        if ticks <= self._ticks:
            ticks = self._ticks + 1
        self._ticks = ticks
        digits = f"{ticks:015x}"
        return f"{digits[:8]}-{digits[8:12]}-6{digits[12:]}-{self._suffix}"

    def advance_past(self, checkpoint_id: str) -> None:
        """Make every id from now on greater than `checkpoint_id`.

        Raises InvalidPayloadError if that is not a UUIDv6: ours could not be kept above it.
        """
        if not _UUID6.fullmatch(checkpoint_id):
            raise InvalidPayloadError(
                f"The thread holds a checkpoint with the id {checkpoint_id!r}, which is no UUIDv6; no run "
                "can follow it. Give checkpoints that you store yourself ids drawn by perdure.clock.IdSource."
            )
        ticks = int(checkpoint_id[:8] + checkpoint_id[9:13] + checkpoint_id[15:18], 16)
        self._ticks = max(self._ticks, ticks)


class LocalIds(IdSource):
    """Ids for a run that stores nothing: in order, and unique within the run, which is all it needs."""

    __slots__ = ("_drawn",)

    def __init__(self) -> None:
        self._drawn = 0

    def next(self) -> str:
        self._drawn += 1
        return f"local-{self._drawn:08d}"


def _random_suffix() -> str:
    """Clock sequence and node of a UUID, with the variant's two bits: what tells sources apart."""
    digits = os.urandom(8).hex()
    return f"{'89ab'[int(digits[0], 16) & 3]}{digits[1:4]}-{digits[4:]}"
