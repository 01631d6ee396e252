"""A graph with everything in it, on a real Postgres: killed at each of its commits, it ends the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import psycopg
import pytest

from perdure.data import Command, Durability
from perdure.service.recovery import recover
from perdure_checkpointers.postgres import PostgresSaver
from tests.integration.postgres.threads import Server
from tests.unit.pregel.worlds import World, assert_told, everything


@pytest.fixture
async def server(database_url: str) -> AsyncIterator[Server]:
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        yield Server(connection)


@pytest.mark.parametrize(("durability", "unheard"), [("sync", False), ("async", True), ("exit", False)])
async def test_a_run_that_is_killed_at_any_of_its_commits_ends_the_same(
    database_url: str, server: Server, durability: Durability, unheard: bool
) -> None:
    given: dict[str, Any] = {}
    async with PostgresSaver.from_conn_string(database_url) as saver:
        calm = World(saver, partial(server.expire, "calm"), "calm")
        expected = await everything(calm).ainvoke(given, calm.config, durability=durability)
    for nth in range(1, len(calm.sent) + 1):
        name = f"killed at {nth}"
        async with PostgresSaver.from_conn_string(database_url) as saver:
            dying = World(saver, partial(server.expire, name), name)
            graph = everything(dying)
            run = graph.ainvoke(given, dying.config, durability=durability)
            if not await dying.until_it_dies(run, nth, unheard=unheard):
                continue
            seen = await graph.aget_state(dying.config)
            dying.began.clear()
            recovered = await recover(graph)
            after = await graph.aget_state(dying.config)

            assert [each.error for each in recovered] == [None] * len(recovered)
            assert (after.values, after.next, dying.repeated) == (expected, (), []), nth
            assert_told(seen, dying)
            again = Command(update={"log": ["again"]}, goto="late")
            assert (await graph.ainvoke(again, dying.config))["log"][-2:] == ["again", "late"]
