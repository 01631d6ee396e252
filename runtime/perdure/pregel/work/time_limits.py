"""Time limits of one attempt of a node, and the signs of progress that put them off."""

from __future__ import annotations

from typing import Any, Final, Literal

from perdure.clock import Clock
from perdure.data import StreamWriter, TimeoutPolicy
from perdure.errors import NodeTimeoutError, StaleRunError
from perdure.pregel.plan.limits import seconds

_INSTANT: Final = 1e-9
"""The rest of a limit, in seconds, that only rounding leaves: less than a clock can tell."""


class Watch:
    """One attempt under a time limit: the time of its beginning, and of its last progress.

    Safe to be told of progress by any thread.

    Attributes:
        over: whether the time is up: nothing that the attempt still does counts.
    """

    __slots__ = ("_above", "_auto", "_began", "_clock", "_idle", "_last", "_node", "_run", "over")

    def __init__(self, node: str, policy: TimeoutPolicy, clock: Clock, above: Watch | None) -> None:
        self._node = node
        self._run = seconds(policy.run_timeout, "run_timeout")
        self._idle = seconds(policy.idle_timeout, "idle_timeout")
        self._auto = policy.refresh_on == "auto"
        self._clock = clock
        self._above = above
        self._began = self._last = clock.monotonic()
        self.over = False

    def progress(self) -> None:
        """Note that something happened which an observer could see."""
        if self._auto:
            self._last = self._clock.monotonic()
        if self._above is not None:
            self._above.progress()

    def heartbeat(self) -> None:
        """Note that the node says it makes progress."""
        self._last = self._clock.monotonic()
        if self._above is not None:
            self._above.heartbeat()

    def writer(self, write: StreamWriter) -> StreamWriter:
        """Return a stream writer whose events count as progress, and are dropped when the time is up."""

        def watched(event: Any) -> None:
            if not self.counts_no_more():
                self.progress()
                write(event)

        return watched

    def counts_no_more(self) -> bool:
        """Return whether the time of this attempt is up, or of one around it."""
        return self.over or (self._above is not None and self._above.counts_no_more())

    def admit(self, graph: str) -> None:
        """Let a child graph run, which is progress. Raises StaleRunError if nobody waits for what it does."""
        if self.counts_no_more():
            raise StaleRunError(
                f"Node {self._node!r} was stopped because its time was up, but goes on and would run graph "
                f"{graph!r} now; nobody waits for that. Let CancelledError end the node."
            )
        self.progress()

    def expire(self, _: object) -> None:
        """Declare the time up: nothing that the attempt still does counts."""
        self.over = True

    async def expired(self) -> Literal["run", "idle"]:
        """Wait until a limit is exceeded, and return which."""
        while True:
            kind, left = self._nearest()
            if left < _INSTANT:
                return kind
            await self._clock.sleep(left)

    def _nearest(self) -> tuple[Literal["run", "idle"], float]:
        """Return the limit that will be exceeded first if nothing happens, and the seconds until then."""
        now = self._clock.monotonic()
        idle = float("inf") if self._idle is None else self._last + self._idle - now
        run = float("inf") if self._run is None else self._began + self._run - now
        return ("run", run) if run <= idle else ("idle", idle)

    def error(self, kind: Literal["run", "idle"]) -> NodeTimeoutError:
        """Return the error of an attempt that exceeded that limit."""
        elapsed = self._clock.monotonic() - self._began
        return NodeTimeoutError(
            self._node, kind, elapsed=elapsed, run_timeout=self._run, idle_timeout=self._idle
        )
