"""The command that prints a statement for psql, and the statements as Postgres understands them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from typing import Any

import anyio
import psycopg
import pytest
from psycopg import sql

from perdure_checkpointers.postgres import PostgresCache, PostgresSaver
from perdure_checkpointers.postgres.queries import CacheQueries, Queries, Statement
from perdure_checkpointers.postgres.queries.__main__ import main, prepared
from perdure_checkpointers.postgres.queries.blocks import BLOCKS
from perdure_checkpointers.postgres.queries.catalog import PAGE_CONDITIONS, statements_as_written
from tests.integration.postgres.threads import TABLES, commit, new_thread, request

Connection = psycopg.Connection[Any]

MAKE_A_THREAD = {"claim", "claim_by_id", "commit_unfenced"}
"""Statements that NULL makes fail, as it is no id for the thread that they would make."""

STATEMENTS = statements_as_written("perdure")
EVERY_STATEMENT = pytest.mark.parametrize("name", sorted(STATEMENTS))


def as_sent(name: str) -> Statement[Any]:
    """Return a statement as the saver sends it, without comments."""
    queries = Queries("perdure")
    everything = {**vars(queries), **vars(CacheQueries("perdure")), "page": queries.page(*PAGE_CONDITIONS)}
    statement: Statement[Any] = everything[name]
    return statement


# Printed


def test_every_statement_is_listed_with_its_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    listed = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())

    assert listed == {name: statement.sentence for name, statement in STATEMENTS.items()}
    assert listed["commit"] == BLOCKS["commit"].sentence
    assert listed["commit_waiting"] == f"{BLOCKS['commit_one'].sentence} Wait if its row is locked."


@EVERY_STATEMENT
def test_a_statement_is_shown_whole(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", name, "--schema", "My schema"]) == 0
    shown = capsys.readouterr().out

    assert shown.startswith(f"-- {name}: ")
    assert not re.search(r"[{}]|%\(", shown), "a part is not filled in"
    assert ('"My schema".' in shown) == ("perdure" in as_sent(name).text.decode())
    assert [line.split()[-1] for line in shown.splitlines() if "NULL" in line and "-- $" in line] == list(
        STATEMENTS[name].names
    )


def test_comments_of_the_files_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    main(["show", "commit"])
    assert "    -- The list is short and mostly empty." in capsys.readouterr().out


def test_an_unknown_statement_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["show", "rows"])  # a part, not a statement
    assert "there is no statement 'rows'; `list` prints their names" in capsys.readouterr().err


def test_it_is_a_module_that_can_be_run() -> None:
    command = [sys.executable, "-m", "perdure_checkpointers.postgres.queries", "show", "holder"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=50, check=True)
    assert "PREPARE holder AS\nSELECT t.run_id" in result.stdout


def test_every_block_is_in_a_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: set[str] = set()

    class Recording(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            asked.add(name)
            return super().__getitem__(name)

    monkeypatch.setattr("perdure_checkpointers.postgres.queries.catalog.BLOCKS", Recording(BLOCKS))
    statements_as_written("schema")
    assert asked == set(BLOCKS)


# Understood by Postgres


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    with psycopg.connect(database_url, autocommit=True, prepare_threshold=None) as connection:
        yield connection


async def seed(database_url: str) -> None:
    """Store something in every table."""
    async with PostgresSaver.from_conn_string(database_url) as saver:
        fence = (await saver.aclaim(request(new_thread()))).fence
        await saver.acommit(commit(fence))
        await PostgresCache.beside(saver).aset({(("node",), "key"): (b"1", None)})


def everything_stored(connection: Connection) -> dict[str, list[Any]]:
    tables = {table: sql.Identifier("perdure", table) for table in (*TABLES, "node_cache")}
    return {
        table: connection.execute(sql.SQL("TABLE {}").format(name)).fetchall()
        for table, name in tables.items()
    }


@EVERY_STATEMENT
def test_postgres_accepts_what_is_shown_and_nulls_change_nothing(
    name: str, connection: Connection, database_url: str
) -> None:
    anyio.run(seed, database_url)
    before = everything_stored(connection)
    assert all(before.values())
    preparing, executing = prepared(name, STATEMENTS[name]).rsplit("\n\n", 1)
    connection.execute(preparing.encode())
    with suppress(psycopg.errors.NotNullViolation) if name in MAKE_A_THREAD else nullcontext():
        connection.execute(executing.encode())

    assert everything_stored(connection) == before


def test_what_is_shown_is_what_is_sent(connection: Connection) -> None:
    for name, shown in STATEMENTS.items():
        sent = as_sent(name)
        assert shown.names == sent.names, name
        assert described(connection, "shown", shown) == described(connection, "sent", sent), name


def test_the_columns_of_a_statement_are_the_fields_of_its_rows(connection: Connection) -> None:
    for name in STATEMENTS:
        statement = as_sent(name)
        _, columns = described(connection, "sent", statement)
        assert [column for column, _ in columns] == statement.columns, name


def described(
    connection: Connection, name: str, statement: Statement[Any]
) -> tuple[list[int], list[tuple[bytes | None, int]]]:
    """Return the types of a statement's parameters, and the names and types of its columns."""
    connection.execute(b"PREPARE %s AS %s" % (name.encode(), statement.text))
    result = connection.pgconn.describe_prepared(name.encode())
    connection.execute(b"DEALLOCATE %s" % name.encode())
    return (
        [result.param_type(number) for number in range(result.nparams)],
        [(result.fname(number), result.ftype(number)) for number in range(result.nfields)],
    )
