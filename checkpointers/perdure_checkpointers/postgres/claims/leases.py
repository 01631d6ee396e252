"""The claims that this process holds, all renewed by one statement."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import anyio
import psycopg

from perdure.aio.combiner import Combiner
from perdure.checkpoint.base import Fence
from perdure.clock import SYSTEM_CLOCK, Clock
from perdure.errors import SaverTimeoutError, StaleRunError
from perdure_checkpointers.postgres.connections.arrays import Int8Array, TextArray
from perdure_checkpointers.postgres.connections.database import Database
from perdure_checkpointers.postgres.connections.lent import Connection, LentConnection
from perdure_checkpointers.postgres.connections.translate import is_lost

_PASSES = 4
_PAUSE_SECONDS = 0.05


@dataclass(slots=True, eq=False)
class _Held:
    """A claim that is renewed.

    Attributes:
        renewed_at: when the renewal that succeeded last was sent, by the monotonic clock.
        lost: True once the server has said that another run has the thread, or none.
    """

    fence: Fence
    renewed_at: float = float("-inf")
    lost: bool = False


class Leases:
    """The claims of this process, and a connection of their own to renew them.

    The pool's connections may all be busy for long, and that must not cost the claims.
    """

    def __init__(self, database: Database, clock: Clock = SYSTEM_CLOCK) -> None:
        self._database = database
        self._clock = clock
        self._held: dict[Fence, _Held] = {}
        self._connection: Connection | None = None
        self._combiner = Combiner()

    def hold(self, fence: Fence) -> None:
        """Renew this claim together with the others from now on."""
        self._held[fence] = _Held(fence)

    def forget(self, fence: Fence) -> None:
        """Renew this claim no longer."""
        self._held.pop(fence, None)
        if not self._held and not self._combiner.sending:
            self._disconnect()

    async def renew(self, fence: Fence, *, lease_seconds: float, fresh_seconds: float) -> None:
        """Renew all claims, unless this one was renewed less than `fresh_seconds` ago.

        Raises StaleRunError if this claim is lost, SaverTimeoutError if its row stays locked.
        """
        held = self._held.setdefault(fence, _Held(fence))
        stale_before = self._clock.monotonic() - fresh_seconds

        async def send() -> None:
            await self._renew_all(lease_seconds)
            if not held.lost and held.renewed_at <= stale_before:
                raise _locked(fence)

        await self._combiner.until(lambda: held.lost or held.renewed_at > stale_before, send)
        if held.lost:
            self.forget(fence)
            raise _lost(fence)

    def close(self) -> None:
        """Forget all claims; their leases run out by themselves."""
        self._held.clear()
        self._disconnect()

    async def _renew_all(self, lease_seconds: float) -> None:
        asked = [held for held in self._held.values() if not held.lost]
        for remaining in reversed(range(_PASSES)):
            # The statement skips rows that a commit has locked, because waiting for one while holding
            # others could deadlock. A commit is short, so those are asked for again after a pause.
            asked = await self._repeated(asked, lease_seconds)
            if not asked or not remaining:
                return
            await self._clock.sleep(_PAUSE_SECONDS)

    async def _repeated(self, asked: list[_Held], lease_seconds: float) -> list[_Held]:
        """Renew, and once more on a new connection if this one was lost; return those that were locked."""
        try:
            return await self._renew_or_disconnect(asked, lease_seconds)
        except psycopg.Error as error:
            if not is_lost(error):
                raise
        return await self._renew_or_disconnect(asked, lease_seconds)

    async def _renew_or_disconnect(self, asked: list[_Held], lease_seconds: float) -> list[_Held]:
        try:
            return await self._renew(asked, lease_seconds)
        except BaseException:
            # Broken, or cancelled in the middle of a statement: the answer may still arrive, and would be
            # taken for that of the next statement.
            self._disconnect()
            raise

    async def _renew(self, asked: list[_Held], lease_seconds: float) -> list[_Held]:
        """Send one renewal of these claims; return those whose row was locked."""
        if self._connection is None:
            self._connection = await self._database.lender.connect()
        lent = LentConnection(self._connection)
        await self._database.lender.prove(lent)
        sent_at = self._clock.monotonic()
        with anyio.fail_after(min(self._database.statement_seconds, lease_seconds)):
            rows = await lent.fetch(self._database.queries.renew, _parameters(asked, lease_seconds))
        locked = []
        for row in rows:
            held = asked[row.n - 1]
            if row.holds is None:
                locked.append(held)
            elif row.holds:
                held.renewed_at = sent_at
            else:
                held.lost = True
        return locked

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # What AsyncConnection.close() does, without its await: forgetting a claim is not one.
            connection.pgconn.finish()


def _lost(fence: Fence) -> StaleRunError:
    return StaleRunError(
        f"Run {fence.run_id!r} lost thread {fence.thread_id!r}: its lease ran out and another run took the "
        "thread, or the thread was deleted. Read the thread's state, and start a new run from it."
    )


def _locked(fence: Fence) -> SaverTimeoutError:
    return SaverTimeoutError(
        f"The lease of run {fence.run_id!r} could not be renewed: another database session keeps the row of "
        f"thread {fence.thread_id!r} locked. Find that session in pg_locks, and end it."
    )


def _parameters(asked: Iterable[_Held], lease_seconds: float) -> dict[str, object]:
    fences = [held.fence for held in asked]
    return {
        "thread": TextArray([fence.thread_id for fence in fences]),
        "run": TextArray([fence.run_id for fence in fences]),
        "epoch": Int8Array([fence.epoch for fence in fences]),
        "lease": float(lease_seconds),
    }
