"""The cache contract on Postgres."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

import anyio
from psycopg_pool import AsyncConnectionPool

from perdure.cache.base import BaseCache, FullKey, Namespace
from perdure.checkpoint.base import SerializerProtocol
from perdure_checkpointers.postgres.connections.arrays import BytesArray, Int8Array, TextArray
from perdure_checkpointers.postgres.connections.database import Database
from perdure_checkpointers.postgres.connections.lender import Pool, pool_of
from perdure_checkpointers.postgres.connections.lent import Connection, LentConnection
from perdure_checkpointers.postgres.queries import CacheQueries, Queries
from perdure_checkpointers.postgres.saver import PostgresSaver

_FOR_EVER: Final = -1
_LONGEST_SECONDS: Final = 100 * 365 * 86_400
"""The longest time that is counted; an entry that is to be kept for longer is kept for ever."""

_AFTER_SLASH: Final = chr(ord("/") + 1)
_AFTER_ALL: Final = "\U0010ffff" * 8
"""A text that sorts after all labels: none begins with this code point, which is no character."""

_CLEARED_AT_ONCE: Final = 10_000
_CLEAR_SECONDS: Final = 300.0


class PostgresCache(BaseCache):
    """A cache that keeps results of nodes in a Postgres database, for all processes that use it.

        async with PostgresSaver.from_conn_string("postgresql://…") as saver:
            await saver.setup()
            cache = PostgresCache.beside(saver)

    Time is the server's. Entries that have expired are removed little by little, whenever one is kept.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        schema: str = "perdure",
        serde: SerializerProtocol | None = None,
        connect_seconds: float = 10.0,
        statement_seconds: float = 30.0,
    ) -> None:
        """Use the application's own pool, which the application opens and closes.

        Args:
            pool: its connections need no settings of their own.
            connect_seconds: how long to wait for a connection.
            statement_seconds: how long to wait for an answer.
        """
        if not isinstance(pool, AsyncConnectionPool):
            raise TypeError(
                f"PostgresCache takes a psycopg_pool.AsyncConnectionPool, not {type(pool).__name__}. For a "
                "URL, write `async with PostgresCache.from_conn_string(url) as cache:`; for the pool of a "
                "saver, `PostgresCache.beside(saver)`."
            )
        super().__init__(serde=serde)
        self._use(
            Database(
                pool,
                Queries(schema),
                schema=schema,
                connect_seconds=connect_seconds,
                statement_seconds=statement_seconds,
            )
        )

    def _use(self, database: Database) -> None:
        self._database = database
        self._queries = CacheQueries(database.schema)
        self._place = replace(database.place, owner="cache")

    @property
    def home(self) -> Any:
        """The event loop on which the connections live."""
        return self._database.home

    @classmethod
    def beside(cls, saver: PostgresSaver, *, serde: SerializerProtocol | None = None) -> PostgresCache:
        """Return a cache in a saver's schema, on its connections, for as long as the saver is open."""
        cache = cls(saver.database.lender.pool, serde=serde)
        cache._use(saver.database)
        return cache

    @classmethod
    @asynccontextmanager
    async def from_conn_string(
        cls,
        url: str,
        *,
        schema: str = "perdure",
        serde: SerializerProtocol | None = None,
        min_size: int = 1,
        max_size: int = 4,
        connect_seconds: float = 10.0,
        statement_seconds: float = 30.0,
    ) -> AsyncIterator[PostgresCache]:
        """Open a cache with a pool of its own, and close it at the end.

        Raises SaverUnavailableError, saying which host and why, if the database does not answer
        within `connect_seconds`; ValueError if `url` is no address of a Postgres.
        """

        async def prove(connection: Connection) -> None:
            await cache._database.lender.prove(LentConnection(connection))

        cache = cls(
            pool_of(url, min_size=min_size, max_size=max_size, prove=prove),
            schema=schema,
            serde=serde,
            connect_seconds=connect_seconds,
            statement_seconds=statement_seconds,
        )
        cache._database.lender.own(at_hand=1)
        await cache._database.lender.open()
        try:
            yield cache
        finally:
            await cache._database.lender.close()

    async def setup(self) -> None:
        """Create the schema, or bring it up to date. Any number of processes may do so at once."""
        with self._place.translated():
            await self._database.setup()

    async def aget(self, keys: Sequence[FullKey]) -> dict[FullKey, bytes]:
        if not keys:
            return {}
        with self._place.translated():
            rows = await self._database.fetch(self._queries.cache_get, _addresses(keys))
        return {keys[row.n - 1]: row.value for row in rows}

    async def aset(self, pairs: Mapping[FullKey, tuple[bytes, float | None]]) -> None:
        if not pairs:
            return
        with self._place.translated():
            parameters = _addresses(list(pairs))
            parameters["values"] = BytesArray([value for value, _ in pairs.values()])
            parameters["ttls"] = Int8Array([_microseconds(ttl) for _, ttl in pairs.values()])
            await self._database.fetch(self._queries.cache_set, parameters)

    async def aclear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        ranges = [_range(namespace) for namespace in ([()] if namespaces is None else namespaces)]
        more = bool(ranges)
        with self._place.translated(), anyio.fail_after(_CLEAR_SECONDS):
            parameters = {
                "firsts": TextArray([first for first, _ in ranges]),
                "untils": TextArray([until for _, until in ranges]),
                "most": _CLEARED_AT_ONCE,
            }
            while more:
                [cleared] = await self._database.fetch(self._queries.cache_clear, parameters)
                more = cleared.found == _CLEARED_AT_ONCE


def _addresses(keys: Sequence[FullKey]) -> dict[str, bytes]:
    return {
        "namespaces": TextArray([_text(namespace) for namespace, _ in keys]),
        "keys": TextArray.long_texts([key for _, key in keys]),
    }


def _text(namespace: Namespace) -> str:
    """Return a namespace as stored: those below it begin with it, and no others do."""
    return "".join(label.replace("~", "~0").replace("/", "~1") + "/" for label in namespace)


def _range(namespace: Namespace) -> tuple[str, str]:
    """Return the first namespace in and below this one, and the first after all of them."""
    first = _text(namespace)
    return (first, first[:-1] + _AFTER_SLASH) if first else ("", _AFTER_ALL)


def _microseconds(ttl: float | None) -> int:
    if ttl is None or ttl > _LONGEST_SECONDS:
        return _FOR_EVER
    return max(0, round(ttl * 1e6))
