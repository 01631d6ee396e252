"""The time limits of one attempt of a node, and the progress that defers them."""

from __future__ import annotations

from typing import Any, Final, Literal

from perdure.clock import Clock
from perdure.data import StreamWriter, TimeoutPolicy
from perdure.errors import NodeTimeoutError, StaleRunError
from perdure.pregel.plan.limits import seconds

_INSTANT: Final = 1e-9
"""Seconds left of a limit that come from rounding only: less than a clock can measure."""


class Watch:
    """One attempt under a time limit: when it began, and when it last made progress.

    Any thread may report progress: that is a single assignment, and the latest one counts.

    Attributes:
        over: True once the time is up. From then on, nothing that the attempt does counts.
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
        """Take an event that others can see for progress, if the policy says so."""
        if self._auto:
            self._last = self._clock.monotonic()
        if self._above is not None:
            self._above.progress()

    def heartbeat(self) -> None:
        """Note progress that the node itself reports."""
        self._last = self._clock.monotonic()
        if self._above is not None:
            self._above.heartbeat()

    def writer(self, write: StreamWriter) -> StreamWriter:
        """Return a stream writer whose events count as progress. It drops events once the time is up."""

        def watched(event: Any) -> None:
            if not self.counts_no_more():
                self.progress()
                write(event)

        return watched

    def counts_no_more(self) -> bool:
        """Return True once the time of this attempt, or of an attempt around it, is up."""
        return self.over or (self._above is not None and self._above.counts_no_more())

    def admit(self, graph: str) -> None:
        """Let a child graph begin, which counts as progress. Raise StaleRunError once the time is up."""
        if self.counts_no_more():
            raise StaleRunError(
                f"Node {self._node!r} was stopped because its time was up, but goes on and invokes graph "
                f"{graph!r}, whose result nobody waits for. Let CancelledError end the node."
            )
        self.progress()

    def expire(self, _: object) -> None:
        """Declare the time up. From then on, nothing that the attempt does counts."""
        self.over = True

    async def expired(self) -> Literal["run", "idle"]:
        """Wait until a limit is exceeded, and return its kind.

        Progress does not wake this. It only moves the limit, which is read again when the former one is
        reached: so any number of reports costs one sleep.
        """
        while True:
            kind, left = self._nearest()
            if left < _INSTANT:
                return kind
            await self._clock.sleep(left)

    def _nearest(self) -> tuple[Literal["run", "idle"], float]:
        """Return the limit that is exceeded first unless there is progress, and the seconds until then."""
        now = self._clock.monotonic()
        idle = float("inf") if self._idle is None else self._last + self._idle - now
        run = float("inf") if self._run is None else self._began + self._run - now
        return ("run", run) if run <= idle else ("idle", idle)

    def error(self, kind: Literal["run", "idle"]) -> NodeTimeoutError:
        """Return the error for an attempt that exceeded this limit."""
        elapsed = self._clock.monotonic() - self._began
        return NodeTimeoutError(
            self._node, kind, elapsed=elapsed, run_timeout=self._run, idle_timeout=self._idle
        )
