"""The Postgres saver keeps the contract of savers."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from perdure.testing.conformance import CHECKS, Check, Subject
from perdure_checkpointers.postgres import PostgresSaver
from tests import postgres


@pytest.fixture(scope="module")
def shared_database_url(postgres_url: str, migrated_template: str) -> Iterator[str]:
    """Provide one database for all checks: each check uses its own threads."""
    with postgres.new_database(postgres_url, template=migrated_template) as url:
        yield url


@pytest.mark.parametrize("check", CHECKS, ids=str)
async def test_postgres_saver(check: Check, shared_database_url: str) -> None:
    async def expire(thread_id: str) -> None:
        async with await psycopg.AsyncConnection.connect(shared_database_url, autocommit=True) as connection:
            await connection.execute(
                "UPDATE perdure.threads SET lease_expires = now() - interval '1 second' WHERE thread_id = %s",
                [thread_id],
            )

    async with PostgresSaver.from_conn_string(shared_database_url) as saver:
        await check(Subject(saver=saver, expire=expire))
