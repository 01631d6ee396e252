"""Keeping a thread while a run works on it: its lease is renewed, its early results are sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from perdure.aio.attendants import Attendants, Service
from perdure.aio.cancellation import CancelledError, Stoppable
from perdure.checkpoint.base import Fence, LeasedSaver
from perdure.clock import Clock
from perdure.errors import StaleRunError
from perdure.pregel.lease.commit_line import CommitLine
from perdure.pregel.lease.session import Session

Result = TypeVar("Result")


async def send_early(session: Session) -> None:
    """Send what has gathered, each time the bell rings.

    When the tasks of a superstep end together, the commit of the superstep follows at once and
    takes their writes along; only while one of them still runs is it worth a statement of its own.
    """
    while True:
        if await session.wake.heard():
            await session.line.settle()


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
        stoppable.stop()

    stoppable = Stoppable()
    attendants = Attendants(services, failed)
    try:
        async with stoppable:
            try:
                return await body()
            except CancelledError:
                raise
            except BaseException as failure:
                failures.append(failure)
    finally:
        await attendants.dismiss()
    raise failures[0]
