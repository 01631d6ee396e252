"""Actions on a database: each bounded in time, and repeated if its connection was lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import anyio
import psycopg

import perdure_migrations
from perdure.aio.home import running_loop
from perdure_checkpointers.postgres.connections.lender import CLEAN_UP_SECONDS, Lender, Pool
from perdure_checkpointers.postgres.connections.lent import LentConnection
from perdure_checkpointers.postgres.connections.translate import SchemaPlace, is_lost, is_repeatable
from perdure_checkpointers.postgres.queries import Queries, Statement

T = TypeVar("T")
Row = TypeVar("Row")
Action = Callable[[LentConnection], Awaitable[T]]

_TRIES: Final = 5
_SETUP_SECONDS: Final = 120.0


class _RepeatableError(Exception):
    """An action failed because of its connection; on another one it may succeed."""

    def __init__(self, error: psycopg.Error) -> None:
        self.error = error


class Database:
    """A schema of a database, on which actions are run.

    Attributes:
        statement_seconds: how long an action may take, unless it says otherwise.
        home: the event loop on which it was used first; its connections live there.
    """

    def __init__(
        self, pool: Pool, queries: Queries, *, schema: str, connect_seconds: float, statement_seconds: float
    ) -> None:
        settings = pool.kwargs if isinstance(pool.kwargs, dict) else {}
        conninfo = pool.conninfo if isinstance(pool.conninfo, str) else None
        self.queries = queries
        self.schema = schema
        self.statement_seconds = statement_seconds
        self.place = SchemaPlace.of(conninfo, settings, schema)
        self.lender = Lender(pool, queries, self.place, connect_seconds)
        self.home: Any = None

    async def setup(self) -> None:
        """Bring the schema up to date."""

        async def migrate(lent: LentConnection) -> None:
            await perdure_migrations.migrate(lent.connection, self.schema)

        await self.run(migrate, seconds=_SETUP_SECONDS)

    async def fetch(self, query: Statement[Row], parameters: Mapping[str, Any]) -> list[Row]:
        """Run one statement that is safe to repeat, and return its rows."""
        return await self.run(lambda lent: lent.fetch(query, parameters))

    async def run(self, action: Action[T], *, seconds: float | None = None, shield: bool = False) -> T:
        """Run an action that is safe to repeat; if its connection was lost, run it again on another.

        With `shield`, an action that has begun is not cancelled before its time is up.
        """
        if self.home is None:
            self.home = running_loop()
        for remaining in reversed(range(_TRIES)):
            try:
                async with self.lender.lend() as lent:
                    return await self._bounded(lent, action, seconds or self.statement_seconds, shield)
            except _RepeatableError as failure:
                if not remaining:
                    raise failure.error from failure.error.__cause__
            await self.lender.replace_broken()
        raise AssertionError("unreachable")

    async def _bounded(self, lent: LentConnection, action: Action[T], seconds: float, shield: bool) -> T:
        connection, pid = lent.connection, 0
        try:
            pid = connection.pgconn.backend_pid
            with anyio.fail_after(seconds, shield=shield):
                if lent.proven is None:
                    await self.lender.prove(lent)
                return await action(lent)
        except TimeoutError:
            # psycopg has asked the server to cancel the statement, and closed the connection if that did
            # not help. Then the statement may still run, and hold its locks.
            if lent.direct and connection.closed:
                await self._stop(pid, seconds / 2)
            raise
        except psycopg.Error as error:
            if is_lost(error):
                await connection.close()
            if is_repeatable(error):
                raise _RepeatableError(error) from error
            raise

    async def _stop(self, pid: int, seconds: float) -> None:
        """Stop the statement of a connection that was closed, if it has run for so long.

        A backend that waits for a lock does not notice that nobody listens any more.
        """
        with anyio.move_on_after(CLEAN_UP_SECONDS, shield=True):
            try:
                async with self.lender.lend() as lent:
                    await lent.fetch(self.queries.stop, {"pid": pid, "seconds": seconds})
            except psycopg.Error:
                pass  # the caller raises the TimeoutError that brought it here, whatever becomes of this
