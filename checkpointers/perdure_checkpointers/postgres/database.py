"""Statements on a pool's connections: each connection proven, each statement bounded in time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from inspect import isawaitable
from math import ceil
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import anyio
import psycopg
from psycopg import AsyncConnection, AsyncCursor, Pipeline
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from perdure.errors import SchemaError
from perdure_checkpointers.postgres import arrays
from perdure_checkpointers.postgres.queries import Queries
from perdure_checkpointers.postgres.translate import Place, is_lost, is_repeatable

Connection = AsyncConnection[Any]
Pool = AsyncConnectionPool[Any]
Row = tuple[Any, ...]
T = TypeVar("T")

_TRIES = 5
_CLEAN_UP_SECONDS = 5.0


@dataclass(slots=True)
class _Known:
    """What was learnt about a connection.

    `direct` means that the server at the other end is always the same one, so that it can be told to
    remember a statement. Behind a transaction pooler a prepared name can be another client's.
    """

    direct: bool
    prepared: set[bytes] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Session:
    """A connection for the length of one intent."""

    connection: Connection
    known: _Known = field(default_factory=lambda: _Known(direct=False))

    async def fetch(self, query: bytes, parameters: Mapping[str, Any]) -> list[Row]:
        """Run a statement; its rows, if it has any. One round trip."""
        # Not connection.cursor(): an application's pool may have a cursor factory of its own.
        cursor = AsyncCursor(self.connection, row_factory=tuple_row)
        prepare = self.known.direct
        if prepare and query not in self.known.prepared and self._may_pipeline():
            # Outside a pipeline, psycopg waits for the answer to PREPARE before it sends the rest.
            self.known.prepared.add(query)
            async with self.connection.pipeline():
                await cursor.execute(query, parameters, prepare=True, binary=True)
        else:
            await cursor.execute(query, parameters, prepare=prepare, binary=True)
        return await cursor.fetchall() if cursor.description is not None else []

    def _may_pipeline(self) -> bool:
        return Pipeline.is_supported() and self.connection.info.transaction_status == TransactionStatus.IDLE


Action = Callable[[Session], Awaitable[T]]


class _RepeatableError(Exception):
    """An action failed on a connection that had been there; on another one it may succeed."""

    def __init__(self, error: psycopg.Error) -> None:
        self.error = error


class Database:
    """Lends connections of a pool to actions, and repeats an action whose connection was lost.

    Attributes:
        statement_seconds: how long an action may take, unless it says otherwise.
        connect_seconds: how long to wait for a new connection, or for one of the pool to become free.
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

    async def fetch(self, query: bytes, parameters: Mapping[str, Any]) -> list[Row]:
        """Run one statement that is safe to repeat."""
        return await self.run(lambda session: session.fetch(query, parameters))

    async def run(self, action: Action[T], *, seconds: float | None = None, shield: bool = False) -> T:
        """Run an action that is safe to repeat; after a lost connection it is, on a fresh one.

        With `shield` an action that has begun is not cancelled before its time is up.
        """
        for remaining in reversed(range(_TRIES)):
            try:
                async with self._lent() as connection:
                    return await self._bounded(connection, action, seconds or self.statement_seconds, shield)
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
            await self.prove(connection)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def prove(self, connection: Connection) -> Session:
        """Check, once for each connection, whether it is Postgres itself, and its isolation level."""
        known = self._known.get(connection)
        if known is None:
            arrays.register(connection)
            rows = await Session(connection).fetch(self.queries.proof, {})
            pid, isolation = rows[0]
            self._check_isolation(isolation)
            known = self._known[connection] = _Known(direct=pid == connection.info.backend_pid)
        return Session(connection, known)

    def _check_isolation(self, isolation: str) -> None:
        if isolation != "read committed":
            raise SchemaError(
                f"transactions of {self.place} are {isolation!r} by default, where a fence would not see"
                " the writer that it waited for: ALTER ROLE … SET default_transaction_isolation TO DEFAULT"
            )

    async def _bounded(self, connection: Connection, action: Action[T], seconds: float, shield: bool) -> T:
        pid, direct = 0, False
        try:
            pid = connection.info.backend_pid
            with anyio.fail_after(seconds, shield=shield):
                session = await self.prove(connection)
                direct = session.known.direct
                return await action(session)
        except TimeoutError:
            if direct and connection.closed:
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
                async with self._lent() as connection:
                    await Session(connection).fetch(self.queries.stop, {"pid": pid, "seconds": seconds})
            except psycopg.Error:
                pass

    @asynccontextmanager
    async def _lent(self) -> AsyncIterator[Connection]:
        connection = await self._borrow()
        autocommit = connection.autocommit
        try:
            if not autocommit:
                await connection.set_autocommit(True)
            yield connection
        finally:
            with anyio.move_on_after(_CLEAN_UP_SECONDS, shield=True):
                if connection.info.pipeline_status != PipelineStatus.OFF:
                    await connection.close()  # cut off in the middle of one
                if not autocommit and not connection.closed:
                    await connection.set_autocommit(False)
                await self.pool.putconn(connection)

    async def _borrow(self) -> Connection:
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
        return connection

    async def _replace_broken(self) -> None:
        """Where one connection broke, others did: have the pool look at those it keeps."""
        with anyio.move_on_after(self.connect_seconds):
            await self.pool.check()


async def _resolved(setting: Any) -> Any:
    value = setting() if callable(setting) else setting
    return await value if isawaitable(value) else value
