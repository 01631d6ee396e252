"""Statements on a pool's connections: each connection proven, each statement bounded in time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from inspect import isawaitable
from math import ceil
from time import monotonic
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import anyio
import psycopg
from psycopg import AsyncConnection, AsyncRawCursor, Pipeline
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

import perdure_migrations
from perdure.aio.home import running_loop
from perdure.errors import SchemaError
from perdure_checkpointers.postgres import arrays
from perdure_checkpointers.postgres.queries import Queries, Statement
from perdure_checkpointers.postgres.translate import Place, check_address, is_lost, is_repeatable

Connection = AsyncConnection[Any]
Pool = AsyncConnectionPool[Any]
T = TypeVar("T")
Row = TypeVar("Row")

_TRIES = 5
_CLEAN_UP_SECONDS = 5.0
_SETUP_SECONDS = 120.0
_AT_HAND_SECONDS = 60.0


@dataclass(slots=True)
class _Known:
    """What was learnt about a connection.

    `direct` means that the server at the other end is always the same one, so that it can be told to
    remember a statement. Behind a transaction pooler a prepared name can be another client's.
    """

    direct: bool
    prepared: set[bytes] = field(default_factory=set)


class Session:
    """A connection that was lent.

    Attributes:
        known: None until the connection is proven.
        lent_at: when it left its pool, by the monotonic clock.
    """

    __slots__ = ("_cursor", "connection", "known", "lent_at")

    def __init__(self, connection: Connection, known: _Known | None = None) -> None:
        self.connection = connection
        self.known = known
        self.lent_at = monotonic()
        self._cursor: AsyncRawCursor[tuple[Any, ...]] | None = None

    @property
    def direct(self) -> bool:
        return self.known is not None and self.known.direct

    async def fetch(self, query: Statement[Row], parameters: Mapping[str, Any]) -> list[Row]:
        """Run a statement, in one round trip, and return its rows."""
        if self._cursor is None:
            # Not connection.cursor(): an application's pool may have a cursor factory of its own. Not
            # earlier: a cursor only knows the types that its connection knew when it was made.
            self._cursor = AsyncRawCursor(self.connection, row_factory=tuple_row)
        cursor, known, text = self._cursor, self.known, query.text
        values = [parameters[name] for name in query.names]
        if known is None or not known.direct:
            await cursor.execute(text, values, prepare=False, binary=True)
        elif text in known.prepared or not self._may_pipeline():
            await cursor.execute(text, values, prepare=True, binary=True)
        else:
            # Outside a pipeline, psycopg waits for the answer to PREPARE before it sends the rest.
            known.prepared.add(text)
            async with self.connection.pipeline():
                await cursor.execute(text, values, prepare=True, binary=True)
        result = cursor.pgresult
        if result is None or not result.nfields:
            return []
        return query.rows(result, await cursor.fetchall())

    def _may_pipeline(self) -> bool:
        return Pipeline.is_supported() and self.connection.info.transaction_status == TransactionStatus.IDLE

    @property
    def is_clean(self) -> bool:
        """Whether the next statement can be sent at once."""
        wire = self.connection.pgconn
        return (
            wire.transaction_status == TransactionStatus.IDLE and wire.pipeline_status == PipelineStatus.OFF
        )


Action = Callable[[Session], Awaitable[T]]


class _RepeatableError(Exception):
    """An action failed on a connection that had been there; on another one it may succeed."""

    def __init__(self, error: psycopg.Error) -> None:
        self.error = error


class Database:
    """Lends connections of a pool to actions, and repeats an action whose connection was lost.

    Of a pool that nobody else uses, a few connections are kept at hand, and the one that was used
    last is used next: a pool hands its connections out in turn, so that each of them has to plan
    every statement (1-2 ms), and asking it and giving back costs a tenth of a commit.

    Attributes:
        statement_seconds: how long an action may take, unless it says otherwise.
        connect_seconds: how long to wait for a new connection, or for one of the pool to become free.
        home: the event loop on which it was used first; its connections live there.
    """

    def __init__(
        self, pool: Pool, queries: Queries, *, schema: str, connect_seconds: float, statement_seconds: float
    ) -> None:
        self.pool = pool
        self.queries = queries
        self.schema = schema
        self.connect_seconds = connect_seconds
        self.statement_seconds = statement_seconds
        settings = pool.kwargs if isinstance(pool.kwargs, dict) else {}
        self.place = Place.of(pool.conninfo if isinstance(pool.conninfo, str) else None, settings, schema)
        self._known: WeakKeyDictionary[Connection, _Known] = WeakKeyDictionary()
        self._proof = queries.proof
        self._most_at_hand = 0
        self._at_hand: list[Session] = []
        self._waiting = 0
        self.home: Any = None

    async def open(self) -> None:
        """Open the pool; SaverUnavailableError, saying which host and why, if the server does not answer."""
        with self.place.translated():
            # A pool only says that it waited. A connection of our own says what is wrong, at once.
            await (await self.connect()).close()
            # Asked before its connections are there, a pool would begin with more than min_size.
            await self.pool.open(wait=True, timeout=self.connect_seconds)

    async def close(self) -> None:
        """Give everything back, and close the pool."""
        with anyio.CancelScope(shield=True):
            await self.give_all_back()
            await self.pool.close()

    async def setup(self) -> None:
        """Bring the schema up to date."""

        async def migrate(session: Session) -> None:
            await perdure_migrations.migrate(session.connection, self.schema)

        await self.run(migrate, seconds=_SETUP_SECONDS)

    def own(self, *, at_hand: int) -> None:
        """Nobody else uses the pool: keep connections at hand, and choose how statements are planned."""
        self._proof = self.queries.proof_and_settings
        self._most_at_hand = at_hand

    async def fetch(self, query: Statement[Row], parameters: Mapping[str, Any]) -> list[Row]:
        """Run one statement that is safe to repeat."""
        return await self.run(lambda session: session.fetch(query, parameters))

    async def run(self, action: Action[T], *, seconds: float | None = None, shield: bool = False) -> T:
        """Run an action that is safe to repeat; after a lost connection it is, on a fresh one.

        With `shield` an action that has begun is not cancelled before its time is up.
        """
        if self.home is None:
            self.home = running_loop()
        for remaining in reversed(range(_TRIES)):
            try:
                async with self.lent() as session:
                    return await self._bounded(session, action, seconds or self.statement_seconds, shield)
            except _RepeatableError as failure:
                if not remaining:
                    raise failure.error from failure.error.__cause__
            await self._replace_broken()
        raise AssertionError("unreachable")

    async def connect(self) -> Connection:
        """A connection outside the pool, made as the pool makes them."""
        pool = self.pool
        conninfo = await _resolved(pool.conninfo)
        settings = {"connect_timeout": ceil(self.connect_seconds), **(await _resolved(pool.kwargs) or {})}
        settings["autocommit"] = True
        with anyio.fail_after(self.connect_seconds + 1):
            connection: Connection = await pool.connection_class.connect(conninfo, **settings)
        try:
            await self.prove(Session(connection))
        except BaseException:
            await connection.close()
            raise
        return connection

    async def prove(self, session: Session) -> None:
        """Check, once for each connection, whether it is Postgres itself, and its isolation level."""
        connection = session.connection
        known = self._known.get(connection)
        if known is None:
            arrays.register(connection)
            told = connection.info.backend_pid
            [proof] = await Session(connection).fetch(self._proof, {"pid": told})
            self._check_isolation(proof.isolation)
            known = self._known[connection] = _Known(direct=proof.pid == told)
        session.known = known

    def _check_isolation(self, isolation: str) -> None:
        if isolation != "read committed":
            raise SchemaError(
                f"transactions of {self.place} are {isolation!r} by default, where a fence would not see"
                " the writer that it waited for: ALTER ROLE … SET default_transaction_isolation TO DEFAULT"
            )

    async def _bounded(self, session: Session, action: Action[T], seconds: float, shield: bool) -> T:
        connection, pid = session.connection, 0
        try:
            pid = connection.pgconn.backend_pid
            with anyio.fail_after(seconds, shield=shield):
                if session.known is None:
                    await self.prove(session)
                return await action(session)
        except TimeoutError:
            if session.direct and connection.closed:
                await self._stop(pid, seconds / 2)
            raise
        except psycopg.Error as error:
            if is_lost(error):
                await connection.close()
            if is_repeatable(error):
                raise _RepeatableError(error) from error
            raise

    async def _stop(self, pid: int, seconds: float) -> None:
        # A backend that waits for a lock does not notice that nobody listens any more.
        with anyio.move_on_after(_CLEAN_UP_SECONDS, shield=True):
            try:
                async with self.lent() as session:
                    await session.fetch(self.queries.stop, {"pid": pid, "seconds": seconds})
            except psycopg.Error:
                pass

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[Session]:
        """A connection in autocommit mode, for the length of one action."""
        session = self._at_hand.pop() if self._at_hand else Session(await self._borrow())
        autocommit = session.connection.autocommit
        try:
            if not autocommit:
                await session.connection.set_autocommit(True)
            yield session
        finally:
            if self._may_be_kept(session):
                self._at_hand.append(session)
            else:
                with anyio.move_on_after(_CLEAN_UP_SECONDS, shield=True):
                    await self._give_back(session.connection, autocommit)

    def _may_be_kept(self, session: Session) -> bool:
        """For a while: a pool replaces old connections, but only those that come back to it."""
        return (
            len(self._at_hand) < self._most_at_hand
            and not self._waiting
            and session.is_clean
            and monotonic() - session.lent_at < _AT_HAND_SECONDS
        )

    async def _give_back(self, connection: Connection, autocommit: bool = True) -> None:
        if connection.info.pipeline_status != PipelineStatus.OFF:
            await connection.close()  # cut off in the middle of one
        if not autocommit and not connection.closed:
            await connection.set_autocommit(False)
        await self.pool.putconn(connection)

    async def _borrow(self) -> Connection:
        self._waiting += 1
        try:
            connection: Connection = await self.pool.getconn(timeout=self.connect_seconds)
        except PoolTimeout as timeout:
            size = self.pool.get_stats().get("pool_size")
            # Exhausted, or nobody there? A pool only says that it waited. Ask the server itself.
            await (await self.connect()).close()
            raise PoolTimeout(
                f"all {size} connections of the pool (max_size {self.pool.max_size}) stayed in use for"
                f" {self.connect_seconds:g} s"
            ) from timeout
        finally:
            self._waiting -= 1
        return connection

    async def _replace_broken(self) -> None:
        """Where one connection broke, others did: have the pool look at those it keeps."""
        with anyio.move_on_after(self.connect_seconds):
            await self.give_all_back()
            await self.pool.check()

    async def give_all_back(self) -> None:
        """Keep no connection at hand."""
        with anyio.move_on_after(_CLEAN_UP_SECONDS, shield=True):
            while self._at_hand:
                await self._give_back(self._at_hand.pop().connection)


def pool_of(
    url: str, *, min_size: int, max_size: int, prove: Callable[[Connection], Awaitable[None]]
) -> Pool:
    """A pool of our own, still to be opened.

    Raises ValueError, not showing it, for a text that is no address.
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
    value = setting() if callable(setting) else setting
    return await value if isawaitable(value) else value
