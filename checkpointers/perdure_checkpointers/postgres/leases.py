"""The claims that this process holds, and how all of them are renewed by one statement."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import anyio
import psycopg

from perdure.checkpoint.base import Fence
from perdure.clock import SYSTEM_CLOCK, Clock
from perdure.errors import SaverTimeoutError, StaleRunError
from perdure_checkpointers.postgres.arrays import Int8Array, TextArray
from perdure_checkpointers.postgres.database import Connection, Database, Session
from perdure_checkpointers.postgres.translate import is_lost

_PASSES = 4
_PAUSE_SECONDS = 0.05


@dataclass(slots=True, eq=False)
class _Held:
    """A claim, and when it was last asked for, by the monotonic clock; never, when it is new."""

    fence: Fence
    renewed_at: float = float("-inf")
    lost: bool = False


class Leases:
    """Renews on a connection of its own: a pool whose connections are all busy must not cost the claims."""

    def __init__(self, database: Database, clock: Clock = SYSTEM_CLOCK) -> None:
        self._database = database
        self._clock = clock
        self._held: dict[Fence, _Held] = {}
        self._connection: Connection | None = None
        self._lock = anyio.Lock()

    def hold(self, fence: Fence) -> None:
        """Renew this claim too, from now on."""
        self._held[fence] = _Held(fence)

    def forget(self, fence: Fence) -> None:
        """Renew it no longer."""
        self._held.pop(fence, None)
        if not self._held and not self._lock.statistics().locked:
            self._disconnect()

    async def renew(self, fence: Fence, *, lease_seconds: float, fresh_seconds: float) -> None:
        """Renew all claims, unless this one was renewed less than `fresh_seconds` ago."""
        held = self._held.setdefault(fence, _Held(fence))
        async with self._lock:
            stale_before = self._clock.monotonic() - fresh_seconds
            if not held.lost and held.renewed_at <= stale_before:
                await self._renew_all(lease_seconds)
        if held.lost:
            self.forget(fence)
            raise StaleRunError(
                f"run {fence.run_id!r} lost thread {fence.thread_id!r}: its lease ran out and another run"
                " took the thread, or the thread was deleted"
            )
        if held.renewed_at <= stale_before:
            raise SaverTimeoutError(
                f"the lease of run {fence.run_id!r} could not be renewed: another session keeps the row of"
                f" thread {fence.thread_id!r} locked"
            )

    def close(self) -> None:
        """Forget all claims; their leases run out by themselves."""
        self._held.clear()
        self._disconnect()

    async def _renew_all(self, lease_seconds: float) -> None:
        asked = [held for held in self._held.values() if not held.lost]
        for remaining in reversed(range(_PASSES)):
            # A row that a commit has locked is passed by, as waiting for it with others in hand could
            # deadlock; a commit is short, so it is asked for again.
            asked = await self._repeated(asked, lease_seconds)
            if not asked or not remaining:
                return
            await self._clock.sleep(_PAUSE_SECONDS)

    async def _repeated(self, asked: list[_Held], lease_seconds: float) -> list[_Held]:
        try:
            return await self._renew(asked, lease_seconds)
        except psycopg.Error as error:
            self._disconnect()
            if not is_lost(error):
                raise
            return await self._renew(asked, lease_seconds)
        except BaseException:
            # Cut off in the middle: the connection is of no use any more.
            self._disconnect()
            raise

    async def _renew(self, asked: list[_Held], lease_seconds: float) -> list[_Held]:
        """Returns those whose row was locked."""
        if self._connection is None:
            self._connection = await self._database.connect()
        session = Session(self._connection)
        await self._database.prove(session)
        sent_at = self._clock.monotonic()
        with anyio.fail_after(min(self._database.statement_seconds, lease_seconds)):
            rows = await session.fetch(self._database.queries.renew, _parameters(asked, lease_seconds))
        locked = []
        for n, holds in rows:
            held = asked[n - 1]
            if holds is None:
                locked.append(held)
            elif holds:
                held.renewed_at = sent_at
            else:
                held.lost = True
        return locked

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # What AsyncConnection.close() does, without its await: forgetting a claim is not one.
            connection.pgconn.finish()


def _parameters(asked: Iterable[_Held], lease_seconds: float) -> dict[str, object]:
    fences = [held.fence for held in asked]
    return {
        "thread": TextArray([fence.thread_id for fence in fences]),
        "run": TextArray([fence.run_id for fence in fences]),
        "epoch": Int8Array([fence.epoch for fence in fences]),
        "lease": float(lease_seconds),
    }
