"""The schema's history: numbered, never edited, and applied once however many start at once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import anyio
import psycopg
import pytest

from perdure_migrations import (
    MIGRATIONS,
    EditedMigrationError,
    MigrationLockError,
    MigrationPermissionError,
    NewerSchemaError,
    migrate,
    status,
)
from perdure_migrations.__main__ import main
from tests import postgres

Connection = psycopg.AsyncConnection[Any]
NAMES = tuple(migration.name for migration in MIGRATIONS)
DESCRIBED = Path(__file__).with_name("schema.txt").read_text("utf-8").splitlines()

DESCRIPTION = """
SELECT c.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
    || CASE WHEN a.attcollation = 'pg_catalog."C"'::regcollation THEN ' C' ELSE '' END
    || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END
    || COALESCE(' default ' || pg_get_expr(d.adbin, d.adrelid), '')
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = 'perdure'::regnamespace AND c.relkind IN ('r', 'p')
UNION ALL SELECT c.relname || ': ' || array_to_string(c.reloptions, ', ')
FROM pg_class c
WHERE c.relnamespace = 'perdure'::regnamespace AND c.relkind = 'r' AND c.reloptions IS NOT NULL
UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'perdure'
UNION ALL SELECT conrelid::regclass || ': ' || pg_get_constraintdef(oid) FROM pg_constraint
WHERE connamespace = 'perdure'::regnamespace AND contype <> 'n'
UNION ALL SELECT 'sequence ' || relname FROM pg_class
WHERE relnamespace = 'perdure'::regnamespace AND relkind = 'S'
"""


@pytest.fixture
async def connection(empty_database_url: str) -> AsyncIterator[Connection]:
    async with await psycopg.AsyncConnection.connect(empty_database_url, autocommit=True) as connection:
        yield connection


def test_numbers_have_no_gaps_and_no_duplicates() -> None:
    assert [migration.id for migration in MIGRATIONS] == list(range(1, len(MIGRATIONS) + 1))
    assert len(set(NAMES)) == len(NAMES)


async def test_all_migrations_together_make_the_schema_that_is_described(connection: Connection) -> None:
    """If the difference is intended, copy the test's output into schema.txt."""
    await migrate(connection)
    rows = await (await connection.execute(DESCRIPTION.encode())).fetchall()
    assert sorted(text for (text,) in rows) == DESCRIBED


async def test_every_key_of_a_thread_leads_with_the_thread(connection: Connection) -> None:
    await migrate(connection)
    rows = await (
        await connection.execute("SELECT indexdef FROM pg_indexes WHERE schemaname = 'perdure'")
    ).fetchall()
    of_no_thread = ("migrations", "node_cache")
    keys = [text for (text,) in rows if not any(table in text for table in of_no_thread)]
    assert keys
    assert all("(thread_id" in text for text in keys)


async def test_migrating_twice_applies_once(connection: Connection) -> None:
    assert (await status(connection)).pending == NAMES
    assert await migrate(connection) == NAMES
    assert await migrate(connection) == ()
    found = await status(connection)
    assert (found.applied, found.pending) == (NAMES, ())


async def test_eight_processes_on_an_empty_database_all_succeed(empty_database_url: str) -> None:
    command = [sys.executable, "-m", "perdure_migrations", empty_database_url]
    processes = [
        await anyio.open_process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(8)
    ]
    said = []
    for process in processes:
        assert process.stdout is not None
        said.append(b"".join([chunk async for chunk in process.stdout]).decode())
        assert await process.wait() == 0
        await process.aclose()
    assert (
        sorted(said)
        == [f"schema perdure: applied {', '.join(NAMES)}\n"] + ["schema perdure: up to date\n"] * 7
    )


async def test_inside_a_callers_transaction_it_is_part_of_it(empty_database_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(empty_database_url) as connection:
        await connection.execute("CREATE TABLE of_the_caller ()")
        assert await migrate(connection) == NAMES
        await connection.rollback()
        assert (await status(connection)).pending == NAMES
        await connection.rollback()
        await connection.execute("CREATE TABLE of_the_caller ()")
        await migrate(connection)
        await connection.commit()
        assert (await status(connection)).pending == ()


@asynccontextmanager
async def reader(owner: Connection, url: str) -> AsyncIterator[tuple[str, Connection]]:
    """Make a role without privileges, and open a session of it."""
    name = f"reader_{uuid4().hex}"
    await owner.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'word'".encode())
    parts = urlsplit(url)
    theirs = parts._replace(netloc=f"{name}:word@{parts.netloc.rpartition('@')[2]}").geturl()
    try:
        async with await psycopg.AsyncConnection.connect(theirs, autocommit=True) as connection:
            yield name, connection
    finally:
        await owner.execute(f"DROP OWNED BY {name}; DROP ROLE {name}".encode())


async def test_a_role_that_may_only_read_succeeds_when_nothing_is_to_be_created(
    connection: Connection, empty_database_url: str
) -> None:
    async with reader(connection, empty_database_url) as (name, theirs):
        with pytest.raises(MigrationPermissionError, match=rf"'{name}' .*python -m perdure_migrations URL"):
            await migrate(theirs)
        await migrate(connection)
        with pytest.raises(MigrationPermissionError, match=name):
            await migrate(theirs)
        await connection.execute(
            f"GRANT USAGE ON SCHEMA perdure TO {name};"
            f" GRANT SELECT ON ALL TABLES IN SCHEMA perdure TO {name}".encode()
        )
        assert await migrate(theirs) == ()


async def test_an_edited_migration_is_named(connection: Connection) -> None:
    await migrate(connection)
    await connection.execute("UPDATE perdure.migrations SET checksum = 'another' WHERE id = 1")
    for call in (migrate, status):
        with pytest.raises(EditedMigrationError, match=NAMES[0]):
            await call(connection)


async def test_a_newer_schema_is_told_with_both_versions(connection: Connection) -> None:
    await migrate(connection)
    await connection.execute("INSERT INTO perdure.migrations VALUES (9999, '9999_later', 'x')")
    with pytest.raises(NewerSchemaError, match=f"9999_later.*{NAMES[-1]}"):
        await migrate(connection)


async def test_a_lock_that_is_not_given_in_time_fails_and_changes_nothing(
    connection: Connection, empty_database_url: str
) -> None:
    async with await psycopg.AsyncConnection.connect(empty_database_url) as other:
        await migrate(other)  # and does not commit
        with pytest.raises(MigrationLockError, match="Nothing was changed"):
            await migrate(connection, lock_seconds=0.2)
    assert (await status(connection)).pending == ()


async def test_two_schemas_of_one_database_are_apart(connection: Connection) -> None:
    assert await migrate(connection, 'Odd "name" {x}') == NAMES
    assert await migrate(connection) == NAMES
    assert (await status(connection, 'Odd "name" {x}')).pending == ()


async def test_a_failed_migration_leaves_nothing(connection: Connection) -> None:
    await connection.execute("CREATE SCHEMA perdure")
    await connection.execute("CREATE TABLE perdure.task_writes ()")
    with pytest.raises(psycopg.errors.DuplicateTable):
        await migrate(connection)
    assert (await status(connection)).pending == NAMES


def test_the_command_says_what_it_did(postgres_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with postgres.new_database(postgres_url) as url:
        assert main([url, "--schema", "other", "--status"]) == 2
        assert main([url, "--schema", "other"]) == 0
        assert main([url, "--schema", "other"]) == 0
        assert main([url, "--schema", "other", "--status"]) == 0
    names = ", ".join(NAMES)
    assert capsys.readouterr().out.splitlines() == [
        "schema other: applied nothing",
        f"missing {names}",
        f"schema other: applied {names}",
        "schema other: up to date",
        f"schema other: applied {names}",
        "missing nothing",
    ]


def test_the_command_fails_with_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["postgresql://nobody@127.0.0.1:1/nowhere"]) == 1
    assert "127.0.0.1" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["postgresql+psycopg://u:SECRET@h/x", "SECRET"])
def test_an_address_that_is_none_is_refused_and_not_shown(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([address])
    assert "SECRET" not in capsys.readouterr().err
