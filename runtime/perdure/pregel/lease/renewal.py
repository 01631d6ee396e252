"""Keeping a thread while a run works on it: its lease is renewed, its early results are sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from perdure.aio.cancellation import Attendants, Service
from perdure.checkpoint.base import Fence, LeasedSaver
from perdure.clock import Clock
from perdure.errors import StaleRunError
from perdure.pregel.lease.session import CommitLine, Superstep

Result = TypeVar("Result")


class Wake:
    """A bell for results that nobody is about to send."""

    __slots__ = ("_event", "_supersteps")

    def __init__(self) -> None:
        self._event = anyio.Event()
        self._supersteps: list[Superstep | None] = []

    def ring(self, superstep: Superstep | None) -> None:
        """Ask for what is in the line to be sent; not if `superstep` has ended when this is heard."""
        self._supersteps.append(superstep)
        self._event.set()

    async def heard(self) -> bool:
        """Wait for a ring; returns whether there is still reason to send."""
        await self._event.wait()
        self._event = anyio.Event()
        rung, self._supersteps = self._supersteps, []
        return any(superstep is None or superstep.unfinished for superstep in rung)


async def send_early(line: CommitLine, wake: Wake) -> None:
    """Send what has gathered, each time the bell rings.

    When the tasks of a superstep end together, the commit of the superstep follows at once and
    takes their writes along; only while one of them still runs is it worth a statement of its own.
    """
    while True:
        if await wake.heard():
            await line.settle()


async def renew(saver: LeasedSaver, fence: Fence, clock: Clock, line: CommitLine) -> None:
    """Keep a claim alive; raises StaleRunError when it is lost, or may be.

    Once the run's end is on its way, the claim may be given back before the answer is here: from then
    on it is the commit's answer that tells.

    The deadline is counted from before the last renewal that succeeded was sent, so this process
    stops before the store gives the thread to another.
    """
    renewed = clock.monotonic()
    while True:
        await clock.sleep(saver.renew_seconds)
        error: Exception | None = None
        while True:
            sent = clock.monotonic()
            left = renewed + saver.stop_seconds - sent
            if left <= 0:
                raise StaleRunError(
                    f"Run {fence.run_id} gave up thread {fence.thread_id!r}: its claim could not be renewed "
                    f"for {saver.stop_seconds:g} seconds. What was stored is kept; recover() continues it."
                ) from error
            try:
                with anyio.fail_after(left):
                    await saver.arenew(fence)
            except StaleRunError:
                if line.ending:
                    return
                raise
            except Exception as failure:
                error = failure
                await clock.sleep(min(1.0, left))
            else:
                renewed = sent
                break


async def hold(body: Callable[[], Awaitable[Result]], *services: Service) -> Result:
    """Run `body` beside `services`, which end with it; the first failure, anybody's, ends all."""
    failures: list[BaseException] = []

    def failed(failure: Exception) -> None:
        failures.append(failure)
        scope.cancel()

    attendants = Attendants(services, failed)
    try:
        with anyio.CancelScope() as scope:
            try:
                return await body()
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as failure:
                failures.append(failure)
    finally:
        await attendants.dismiss()
    raise failures[0]
