"""A saver on a database of the test's own, and a second session to look on and to interfere."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest

from perdure_checkpointers.postgres import PostgresSaver
from perdure_checkpointers.postgres.connections.lent import LentConnection
from perdure_checkpointers.postgres.queries import Statement
from tests.integration.postgres.threads import Server


@pytest.fixture
async def saver(database_url: str) -> AsyncIterator[PostgresSaver]:
    async with PostgresSaver.from_conn_string(database_url) as saver:
        yield saver


@pytest.fixture
async def other_saver(database_url: str) -> AsyncIterator[PostgresSaver]:
    """Another process's, as far as Postgres can tell."""
    async with PostgresSaver.from_conn_string(database_url) as saver:
        yield saver


@pytest.fixture
async def server(database_url: str) -> AsyncIterator[Server]:
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        yield Server(connection)


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Record every statement that savers send from now on."""
    sent: list[bytes] = []
    fetch = LentConnection.fetch

    async def counted(self: LentConnection, query: Statement[Any], parameters: Any) -> Any:
        sent.append(query.text)
        return await fetch(self, query, parameters)

    monkeypatch.setattr(LentConnection, "fetch", counted)
    return sent
