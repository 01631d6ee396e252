"""Claims: how a run takes a thread, and gives it back if no commit does that."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Final
from weakref import WeakSet

from perdure import faults
from perdure.aio.cancellation import clean_up
from perdure.checkpoint.base import BaseCheckpointSaver, Claim, ClaimRequest, LeasedSaver, RunEnd
from perdure.errors import OrphanTakenError, StaleRunError, ThreadBusyError, UnfencedSaverWarning
from perdure.pregel.lease.session import Session
from perdure.pregel.step.failures import add_note

CLEANUP_SECONDS: Final = 10.0
"""Seconds for which a stopped run may delay its end to store results and to release its claim."""

_unfenced: WeakSet[BaseCheckpointSaver] = WeakSet()


async def claim_thread(saver: LeasedSaver, asked: ClaimRequest) -> Claim:
    """Claim a thread.

    Cancelled while its answer is on the way, this may leave a claim behind, which runs out with its lease.
    A claim that is sent again with the same run id gets the same epoch, so a saver may repeat it.

    Raises:
        ThreadBusyError: another run holds the thread.
        OrphanTakenError: the claim is for an orphan, but the run is no orphan any more.
    """
    if faults.hook is not None:
        await faults.reach("claim.send", asked.thread_id)
    try:
        claim = await saver.aclaim(asked)
    except (StaleRunError, ThreadBusyError) as error:
        if asked.successor_of is None:
            raise
        raise OrphanTakenError(
            f"Run {asked.run_id!r} of thread {asked.thread_id!r} is no orphan any more: it has ended, or "
            "another process continues it. Leave it alone."
        ) from error
    if faults.hook is not None:
        await faults.reach("claim.acknowledged", asked.thread_id)
    return claim


async def give_back(session: Session, error: BaseException) -> None:
    """Release the claim of a run whose end no commit has stored."""
    if session.fence is None or not isinstance(session.saver, LeasedSaver):
        return
    if isinstance(session.line.failure, StaleRunError):
        return  # another run holds the thread by now
    try:
        # `error` may be a cancellation, and more can follow. They are held off, for CLEANUP_SECONDS at most.
        # If the release is lost nevertheless, the thread is free when the lease runs out. A release that
        # arrives late cannot touch a successor's claim, which has another epoch.
        release = partial(session.saver.arelease, session.fence, end_of(error))
        await clean_up(release, CLEANUP_SECONDS)
    except Exception as failure:
        add_note(error, f"The thread could not be given back: {failure!r}")


def end_of(error: BaseException) -> RunEnd:
    """Return the recorded end of a run that an error or its cancellation has stopped."""
    return RunEnd(status="error" if isinstance(error, Exception) else "cancelled", error=repr(error))


def warn_unfenced(saver: BaseCheckpointSaver) -> None:
    """Warn once for each saver that has no leases."""
    if saver in _unfenced:
        return
    _unfenced.add(saver)
    warnings.warn(
        f"{type(saver).__name__} has no leases: nothing keeps two runs on one thread apart, and recover() "
        "finds no runs that crashed. Use a saver with leases where either matters.",
        UnfencedSaverWarning,
        stacklevel=3,
    )
