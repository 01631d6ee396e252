"""The databases that conftest.py hands out."""

from __future__ import annotations

import psycopg
import pytest

from tests.postgres import database_name, new_database, throwaway_server

HAS_SCHEMA = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'perdure')"
HAS_DATABASE = "SELECT EXISTS (SELECT FROM pg_database WHERE datname = %s)"


async def ask(url: str, query: str, *parameters: object) -> object:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        cursor = await connection.execute(query, parameters)
        row = await cursor.fetchone()
        assert row is not None
        return row[0]


async def test_database_has_all_migrations(database_url: str) -> None:
    assert await ask(database_url, HAS_SCHEMA)
    assert await ask(database_url, "SELECT count(*) > 0 FROM perdure.migrations")


async def test_empty_database_has_no_schema(empty_database_url: str) -> None:
    assert not await ask(empty_database_url, HAS_SCHEMA)


async def test_each_test_has_a_database_of_its_own(database_url: str, empty_database_url: str) -> None:
    current = "SELECT current_database()"
    assert await ask(database_url, current) == database_name(database_url)
    assert await ask(empty_database_url, current) == database_name(empty_database_url)
    assert database_name(database_url) != database_name(empty_database_url)


def test_database_is_dropped_under_an_open_connection(postgres_url: str) -> None:
    with new_database(postgres_url) as url:
        left_open = psycopg.connect(url)
    with psycopg.connect(postgres_url) as connection:
        row = connection.execute(HAS_DATABASE, [database_name(url)]).fetchone()
    left_open.close()
    assert row == (False,)


def test_throwaway_server_is_gone_afterwards() -> None:
    with throwaway_server() as url:
        psycopg.connect(url).close()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)
