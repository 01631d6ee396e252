"""The services beside a run: its lease is renewed, and its early results are sent."""

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
    """Send the commits in the line each time the bell rings.

    When the tasks of a superstep end together, the commit of the superstep follows at once and takes their
    writes along. Only while another task still runs are the writes worth a statement of their own.
    """
    while True:  # until it is cancelled, with the run; what it was sending then, the run's end sends again
        if await session.wake.heard():
            await session.line.settle()


async def renew(saver: LeasedSaver, fence: Fence, clock: Clock, line: CommitLine) -> None:
    """Renew a lease until the run ends. Raise StaleRunError when the claim is lost, or may be.

    The lease in the store begins when a renewal arrives there. This process counts from before it sent the
    renewal, and gives up after `stop_seconds`, which is less than the lease: so it stops before the store
    lets another run take the thread. Should the process be frozen past that, the fence refuses its commits.
    """
    renewed = clock.monotonic()  # a little after the claim, for which lease and `stop_seconds` differ enough
    while True:
        await clock.sleep(saver.renew_seconds)
        error: Exception | None = None
        while True:
            sent = clock.monotonic()  # before sending, so that a slow answer shortens what is left
            left = renewed + saver.stop_seconds - sent
            if left <= 0:
                raise StaleRunError(
                    f"Run {fence.run_id} gave up thread {fence.thread_id!r}: its claim could not be renewed "
                    f"for {saver.stop_seconds:g} seconds. Stored results are kept. Continue the run with "
                    "recover()."
                ) from error
            try:
                with anyio.fail_after(left):
                    await saver.arenew(fence)
            except StaleRunError:
                # The commit with the run's end releases the claim. Once it is on its way, a refused renewal
                # proves nothing: the commit's own answer decides.
                if line.ending:
                    return
                raise
            except Exception as failure:
                # Try again until the deadline. A renewal whose answer was lost may be repeated: it only moves
                # the end of the lease.
                error = failure
                await clock.sleep(min(1.0, left))
            else:
                renewed = sent
                break


async def hold(body: Callable[[], Awaitable[Result]], *services: Service) -> Result:
    """Run `body` beside `services`, which end with it. The first failure of any of them ends all.

    A failing service cancels the body, once. Its failure is then raised in place of that cancellation.
    """
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
                raise  # to `stoppable`, which takes back its own cancellation and lets the caller's through
            except BaseException as failure:
                failures.append(failure)  # behind the service's failure, if that is why the body failed
    finally:
        await attendants.dismiss()  # in every case, and in spite of cancellation: none outlives the run
    raise failures[0]
