"""The runner, which brings a schema up to date: numbered migrations, a ledger, one lock.

It may be called from any number of processes at once, inside a transaction that the caller has opened,
behind a transaction pooler, and, as long as nothing is missing, by a role that may only read.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import anyio
from psycopg import AsyncConnection, errors, sql
from psycopg.rows import class_row

from perdure_migrations.catalog import MIGRATIONS, Migration
from perdure_migrations.errors import (
    EditedMigrationError,
    MigrationLockError,
    MigrationPermissionError,
    NewerSchemaError,
)

Connection = AsyncConnection[Any]

_POLL_SECONDS = 0.05

_HAS_SCHEMA = sql.SQL("SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = %s) AS answer")
_HAS_LEDGER = sql.SQL(
    "SELECT EXISTS (SELECT FROM pg_catalog.pg_class c"
    " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
    " WHERE n.nspname = %s AND c.relname = 'migrations') AS answer"
)
_LEDGER = sql.SQL("SELECT id, name, checksum FROM {}.migrations ORDER BY id")
_TRY_LOCK = sql.SQL(
    "SELECT pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtextextended(%s, 0)) AS answer"
)
_CREATE_SCHEMA = sql.SQL("CREATE SCHEMA {}")
_RECORD = sql.SQL("INSERT INTO {}.migrations (id, name, checksum) VALUES (%s, %s, %s)")


class _Applied(NamedTuple):
    """A row of the ledger."""

    id: int
    name: str
    checksum: str


class _Answer(NamedTuple):
    """The row of a question that is answered with yes or no."""

    answer: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The names of migrations, oldest first: those that the schema has, and those that it needs."""

    applied: tuple[str, ...]
    pending: tuple[str, ...]


async def status(connection: Connection, schema: str = "perdure") -> Status:
    """Compare the schema with this release, changing nothing.

    Raises EditedMigrationError or NewerSchemaError if they do not fit.
    """
    with _privileges_explained(connection, schema):
        return _status(await _applied(connection, schema))


async def migrate(
    connection: Connection, schema: str = "perdure", *, lock_seconds: float = 60.0
) -> tuple[str, ...]:
    """Apply the missing migrations, all or none, and return their names.

    Raises MigrationLockError if another process holds the lock for longer than `lock_seconds`.
    """
    with _privileges_explained(connection, schema):
        if not (await status(connection, schema)).pending:
            return ()
        async with connection.transaction():
            await _lock(connection, schema, lock_seconds)
            return await _apply_pending(connection, schema)


async def _apply_pending(connection: Connection, schema: str) -> tuple[str, ...]:
    # Asked again, now that the lock is held: another process may have applied them meanwhile.
    pending = set(_status(await _applied(connection, schema)).pending)
    if pending and not await _answer(connection, _HAS_SCHEMA, schema):
        await connection.execute(_CREATE_SCHEMA.format(sql.Identifier(schema)))
    for migration in MIGRATIONS:
        if migration.name in pending:
            await _apply(connection, schema, migration)
    return tuple(migration.name for migration in MIGRATIONS if migration.name in pending)


async def _apply(connection: Connection, schema: str, migration: Migration) -> None:
    name = sql.Identifier(schema)
    # The text holds several statements. Only the simple protocol takes those, so nothing is prepared.
    await connection.execute(sql.SQL(migration.text).format(schema=name), prepare=False)
    await connection.execute(_RECORD.format(name), (migration.id, migration.name, migration.checksum))


async def _lock(connection: Connection, schema: str, seconds: float) -> None:
    # Polled: to bound a wait on the server would take a session setting, which would stay in a caller's
    # transaction, or reach another client behind a transaction pooler.
    deadline = anyio.current_time() + seconds
    while anyio.current_time() < deadline:
        if await _answer(connection, _TRY_LOCK, f"perdure_migrations {schema}"):
            return
        await anyio.sleep(_POLL_SECONDS * (0.5 + random.random()))
    raise MigrationLockError(
        f"Another process has been migrating schema {schema!r} of {_place(connection)} for more than "
        f"{seconds:g} s. Nothing was changed; try again when it is done."
    )


async def _applied(connection: Connection, schema: str) -> Sequence[_Applied]:
    if not await _answer(connection, _HAS_LEDGER, schema):
        return ()
    async with connection.cursor(row_factory=class_row(_Applied)) as cursor:
        await cursor.execute(_LEDGER.format(sql.Identifier(schema)))
        return await cursor.fetchall()


async def _answer(connection: Connection, query: sql.SQL, argument: str) -> bool:
    async with connection.cursor(row_factory=class_row(_Answer)) as cursor:
        await cursor.execute(query, (argument,))
        row = await cursor.fetchone()
    return row is not None and row.answer


def _status(applied: Sequence[_Applied]) -> Status:
    known = {migration.id: migration for migration in MIGRATIONS}
    for row in applied:
        if row.id not in known:
            raise NewerSchemaError(
                f"The schema has migration {row.name}, but this release ends at {MIGRATIONS[-1].name}. "
                "Upgrade perdure on this machine."
            )
        if known[row.id].checksum != row.checksum:
            raise EditedMigrationError(
                f"Migration {row.name} was changed after it had been applied. Put its file back as it was, "
                "and write a new migration for what should be different."
            )
    done = {row.id for row in applied}
    return Status(
        applied=tuple(row.name for row in applied),
        pending=tuple(migration.name for migration in MIGRATIONS if migration.id not in done),
    )


@contextmanager
def _privileges_explained(connection: Connection, schema: str) -> Iterator[None]:
    try:
        yield
    except errors.InsufficientPrivilege as error:
        raise MigrationPermissionError(
            f"Role {connection.info.user!r} may not read or create what schema {schema!r} of "
            f"{_place(connection)} needs ({error.diag.message_primary}). Run "
            f"`python -m perdure_migrations URL --schema {schema}` as a role that may, and grant this one "
            "USAGE on the schema and SELECT, INSERT, UPDATE, DELETE on its tables."
        ) from error


def _place(connection: Connection) -> str:
    return f"database {connection.info.dbname!r} on {connection.info.host}:{connection.info.port}"
