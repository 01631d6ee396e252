"""A connection that was lent for one action, and the statements that are sent through it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, TypeVar

from psycopg import AsyncConnection, AsyncRawCursor, Pipeline
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from perdure_checkpointers.postgres.queries import Statement

Connection = AsyncConnection[Any]
Row = TypeVar("Row")


@dataclass(slots=True)
class Proven:
    """Knowledge about a connection.

    Attributes:
        direct: True if the server at the other end is always the same one, so that it can be told to
            remember a statement. Behind a transaction pooler, a prepared name can be another client's.
        prepared: the statements that it remembers.
    """

    direct: bool
    prepared: set[bytes] = field(default_factory=set)


class LentConnection:
    """A connection that was lent.

    Attributes:
        proven: None until the connection is proven.
        lent_at: when it left its pool, by the monotonic clock.
    """

    __slots__ = ("_cursor", "connection", "lent_at", "proven")

    def __init__(self, connection: Connection, proven: Proven | None = None) -> None:
        self.connection = connection
        self.proven = proven
        self.lent_at = monotonic()
        self._cursor: AsyncRawCursor[tuple[Any, ...]] | None = None

    @property
    def direct(self) -> bool:
        """True if the server at the other end is certainly always the same one."""
        return self.proven is not None and self.proven.direct

    @property
    def is_clean(self) -> bool:
        """True if the next statement can be sent at once."""
        wire = self.connection.pgconn
        return (
            wire.transaction_status == TransactionStatus.IDLE and wire.pipeline_status == PipelineStatus.OFF
        )

    async def fetch(self, query: Statement[Row], parameters: Mapping[str, Any]) -> list[Row]:
        """Run a statement, in one round trip, and return its rows."""
        if self._cursor is None:
            # Not connection.cursor(): an application's pool may have a cursor factory of its own. Not
            # earlier: a cursor knows only the types that its connection knew when it was made.
            self._cursor = AsyncRawCursor(self.connection, row_factory=tuple_row)
        cursor, proven, text = self._cursor, self.proven, query.text
        values = [parameters[name] for name in query.names]
        if proven is None or not proven.direct:
            await cursor.execute(text, values, prepare=False, binary=True)
        elif text in proven.prepared or not self._may_pipeline():
            await cursor.execute(text, values, prepare=True, binary=True)
        else:
            # Outside a pipeline, psycopg waits for the answer to PREPARE before it sends the rest.
            proven.prepared.add(text)
            async with self.connection.pipeline():
                await cursor.execute(text, values, prepare=True, binary=True)
        result = cursor.pgresult
        if result is None or not result.nfields:
            return []
        return query.rows(result, await cursor.fetchall())

    def _may_pipeline(self) -> bool:
        return Pipeline.is_supported() and self.connection.info.transaction_status == TransactionStatus.IDLE
