"""The lending of a pool's connections: each proven once, a few of them kept at hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from inspect import isawaitable
from math import ceil
from time import monotonic
from typing import Any, Final
from weakref import WeakKeyDictionary

import anyio
from psycopg.pq import PipelineStatus
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from perdure.errors import SchemaError
from perdure_checkpointers.postgres.connections import arrays
from perdure_checkpointers.postgres.connections.lent import Connection, LentConnection, Proven
from perdure_checkpointers.postgres.connections.translate import SchemaPlace, check_address
from perdure_checkpointers.postgres.queries import Queries

Pool = AsyncConnectionPool[Any]

CLEAN_UP_SECONDS: Final = 5.0
"""Seconds that giving a connection back may take after the action was cancelled."""

_AT_HAND_SECONDS: Final = 60.0


class Lender:
    """A pool's connections, lent for one action each.

    Of a pool that nobody else uses, a few connections are kept at hand, and the one that was used last is
    used next. A pool hands its connections out in turn, so that each of them has to plan every statement
    (1-2 ms), and borrowing and giving back costs a tenth of a commit.
    """

    def __init__(self, pool: Pool, queries: Queries, place: SchemaPlace, connect_seconds: float) -> None:
        self.pool = pool
        self._queries = queries
        self._place = place
        self._connect_seconds = connect_seconds
        self._proof = queries.proof
        self._proven: WeakKeyDictionary[Connection, Proven] = WeakKeyDictionary()
        self._most_at_hand = 0
        self._at_hand: list[LentConnection] = []
        self._waiting = 0

    def own(self, *, at_hand: int) -> None:
        """Treat the pool as one that nobody else uses.

        So many connections are kept at hand, and the pool's connections are told how to plan statements.
        """
        self._proof = self._queries.proof_and_settings
        self._most_at_hand = at_hand

    async def open(self) -> None:
        """Open the pool.

        Raises SaverUnavailableError, naming host and cause, if the server does not answer.
        """
        with self._place.translated():
            # A pool only says that it waited. A connection of our own says what is wrong, at once.
            await (await self.connect()).close()
            # Asked before its connections are there, a pool would begin with more than min_size.
            await self.pool.open(wait=True, timeout=self._connect_seconds)

    async def close(self) -> None:
        """Give all connections back, and close the pool."""
        with anyio.CancelScope(shield=True):
            await self.give_all_back()
            await self.pool.close()

    async def connect(self) -> Connection:
        """Make a connection outside the pool, as the pool makes its own."""
        pool = self.pool
        conninfo = await _resolved(pool.conninfo)
        settings = {"connect_timeout": ceil(self._connect_seconds), **(await _resolved(pool.kwargs) or {})}
        settings["autocommit"] = True
        with anyio.fail_after(self._connect_seconds + 1):
            connection: Connection = await pool.connection_class.connect(conninfo, **settings)
        try:
            await self.prove(LentConnection(connection))
        except BaseException:
            await connection.close()
            raise
        return connection

    async def prove(self, lent: LentConnection) -> None:
        """Check, once for each connection, if it is Postgres itself that answers, and its isolation level."""
        connection = lent.connection
        proven = self._proven.get(connection)
        if proven is None:
            arrays.register(connection)
            told = connection.info.backend_pid
            [proof] = await LentConnection(connection).fetch(self._proof, {"pid": told})
            self._check_isolation(proof.isolation)
            proven = self._proven[connection] = Proven(direct=proof.pid == told)
        lent.proven = proven

    def _check_isolation(self, isolation: str) -> None:
        if isolation != "read committed":
            raise SchemaError(
                f"Transactions of {self._place} are {isolation!r} by default. In those, a fence does not see "
                "the writer that it waited for. Run ALTER ROLE … SET default_transaction_isolation TO "
                "DEFAULT."
            )

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[LentConnection]:
        """Lend a connection in autocommit mode for the length of one action."""
        lent = self._at_hand.pop() if self._at_hand else LentConnection(await self._borrow())
        autocommit = lent.connection.autocommit
        try:
            if not autocommit:
                await lent.connection.set_autocommit(True)
            yield lent
        finally:
            if self._may_be_kept(lent):
                self._at_hand.append(lent)
            else:
                # Shielded: a connection that is not given back is missing in the pool for ever.
                with anyio.move_on_after(CLEAN_UP_SECONDS, shield=True):
                    await self._give_back(lent.connection, autocommit)

    def _may_be_kept(self, lent: LentConnection) -> bool:
        """Return True if a connection may stay at hand.

        Not for long: a pool replaces old connections, but only those that come back to it. Not while an
        action waits for one of the pool: it would not learn of one at hand.
        """
        return (
            len(self._at_hand) < self._most_at_hand
            and not self._waiting
            and lent.is_clean
            and monotonic() - lent.lent_at < _AT_HAND_SECONDS
        )

    async def _borrow(self) -> Connection:
        self._waiting += 1
        try:
            connection: Connection = await self.pool.getconn(timeout=self._connect_seconds)
        except PoolTimeout as timeout:
            size = self.pool.get_stats().get("pool_size")
            # Exhausted, or nobody there? A pool only says that it waited. Ask the server itself.
            await (await self.connect()).close()
            raise PoolTimeout(
                f"all {size} connections of the pool (max_size {self.pool.max_size}) stayed in use for"
                f" {self._connect_seconds:g} s"
            ) from timeout
        finally:
            self._waiting -= 1
        return connection

    async def _give_back(self, connection: Connection, autocommit: bool = True) -> None:
        if connection.info.pipeline_status != PipelineStatus.OFF:
            await connection.close()  # cut off in the middle of a pipeline, whose answers are still to come
        if not autocommit and not connection.closed:
            await connection.set_autocommit(False)
        await self.pool.putconn(connection)

    async def give_all_back(self) -> None:
        """Keep no connection at hand."""
        with anyio.move_on_after(CLEAN_UP_SECONDS, shield=True):
            while self._at_hand:
                await self._give_back(self._at_hand.pop().connection)

    async def replace_broken(self) -> None:
        """Have the pool check all its connections: where one broke, others did."""
        with anyio.move_on_after(self._connect_seconds):
            await self.give_all_back()
            await self.pool.check()


def pool_of(
    url: str, *, min_size: int, max_size: int, prove: Callable[[Connection], Awaitable[None]]
) -> Pool:
    """Return a pool of our own, still to be opened.

    Raises ValueError, without showing the text, if `url` is no address.
    """
    check_address(url)
    return AsyncConnectionPool(
        url,
        min_size=min_size,
        max_size=max_size,
        kwargs={"autocommit": True},
        configure=prove,
        open=False,
        name="perdure",
    )


async def _resolved(setting: Any) -> Any:
    """Return a setting of a pool, which may be a function, or a coroutine function, that returns it."""
    value = setting() if callable(setting) else setting
    return await value if isawaitable(value) else value
