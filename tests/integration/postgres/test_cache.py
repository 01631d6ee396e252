"""The cache in Postgres: its round trips, its rows, and what it says when the database does not serve."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import anyio
import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from perdure.cache.base import FullKey
from perdure.checkpoint.serde import JsonSerializer
from perdure.errors import SaverTimeoutError, SaverUnavailableError, SchemaError, UnserializableValueError
from perdure_checkpointers.postgres import PostgresCache, PostgresSaver
from perdure_checkpointers.postgres import cache as cache_module
from tests.integration.postgres.proxy import counting_proxy
from tests.integration.postgres.threads import Server, commit, config, new_thread, request, until_waiting
from tests.unit.pregel.caching import cached
from tests.unit.pregel.graphs import chain, thread


@pytest.fixture
async def cache(database_url: str) -> AsyncIterator[PostgresCache]:
    async with PostgresCache.from_conn_string(database_url) as cache:
        yield cache


def at(n: int, *labels: str) -> FullKey:
    return (labels or ("ns",), f"{n:04d}")


def entries(numbers: Any, ttl: float | None = None) -> dict[FullKey, tuple[bytes, float | None]]:
    return {at(n): (b"%d" % n, ttl) for n in numbers}


# What it costs, and what it leaves


async def test_every_call_is_one_round_trip_however_many_keys_it_is_about(database_url: str) -> None:
    async with counting_proxy(database_url) as wire, PostgresCache.from_conn_string(wire.url) as cache:
        await cache.aget([at(0)])
        for call in (
            lambda: cache.aset(entries(range(300))),
            lambda: cache.aget([at(n) for n in range(300)]),
            lambda: cache.aclear([("ns",), ("other",)]),
            cache.aclear,
        ):
            before = wire.round_trips
            await call()
            assert wire.round_trips - before == 1


async def test_what_has_expired_is_removed_when_something_is_kept(
    cache: PostgresCache, server: Server
) -> None:
    await cache.aset({**entries(range(5), 60.0), **entries(range(5, 8))})
    await server.rows(
        "UPDATE perdure.node_cache SET expires_at = now() - interval '1 second' WHERE key < '0004'"
    )
    await cache.aset({})
    assert await server.count("node_cache") == 8
    await cache.aset(entries([9]))
    assert [key for (key,) in await server.rows("SELECT key FROM perdure.node_cache ORDER BY key")] == [
        "0004",
        "0005",
        "0006",
        "0007",
        "0009",
    ]


async def test_a_bounded_number_is_removed_at_once_and_more_than_is_kept(
    cache: PostgresCache, server: Server
) -> None:
    await server.rows(
        "INSERT INTO perdure.node_cache SELECT 'old/', n::text, now() - interval '1 second', ''"
        " FROM generate_series(1, 500) n"
    )
    await cache.aset(entries(range(20)))
    assert await server.count("node_cache") == 500 + 20 - 120


async def test_an_expired_entry_that_is_kept_again_is_not_removed_with_the_others(
    cache: PostgresCache, server: Server
) -> None:
    await cache.aset(entries(range(3), 60.0))
    await server.rows("UPDATE perdure.node_cache SET expires_at = now() - interval '1 second'")
    await cache.aset(entries([1], 60.0))
    assert await cache.aget([at(n) for n in range(3)]) == {at(1): b"1"}
    assert await server.count("node_cache") == 1


async def test_what_another_session_has_locked_is_not_waited_for_when_expired(
    cache: PostgresCache, server: Server
) -> None:
    await cache.aset(entries([1], 0))
    async with server.connection.transaction():
        await server.rows("SELECT FROM perdure.node_cache FOR UPDATE")
        with anyio.fail_after(10):
            await cache.aset(entries([2]))
    assert await server.count("node_cache") == 2


async def test_time_is_the_servers(cache: PostgresCache, server: Server) -> None:
    await cache.aset({at(1): (b"1", 90.0), at(2): (b"2", 1e12), at(3): (b"3", None)})
    assert await server.rows(
        "SELECT key, round(extract(epoch FROM expires_at - now()) / 10)::int FROM perdure.node_cache"
        " ORDER BY key"
    ) == [("0001", 9), ("0002", None), ("0003", None)]


async def test_clearing_goes_on_until_nothing_is_left(
    cache: PostgresCache, server: Server, statements: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "_CLEARED_AT_ONCE", 10)
    await cache.aset(entries(range(25)))
    statements.clear()
    await cache.aclear([("ns",), ()])
    assert await server.count("node_cache") == 0
    assert len(statements) <= 6


async def test_a_clearing_that_waited_for_a_writer_removes_what_that_kept(
    cache: PostgresCache, server: Server
) -> None:
    await cache.aset(entries(range(3)))
    async with anyio.create_task_group() as group, server.connection.transaction():
        await server.rows("UPDATE perdure.node_cache SET value = 'later' WHERE key = '0001'")
        group.start_soon(cache.aclear)
        await until_waiting(server)
    assert await server.count("node_cache") == 0


async def test_writers_and_clearers_of_the_same_keys_do_not_deadlock(
    cache: PostgresCache, database_url: str, server: Server
) -> None:
    numbers = list(range(100))

    async def write(to: PostgresCache, step: int) -> None:
        for _ in range(10):
            await to.aset(entries(numbers[::step], 0.001))

    async def clear(to: PostgresCache) -> None:
        for _ in range(10):
            await to.aclear([("ns",)])

    async with PostgresCache.from_conn_string(database_url) as other, anyio.create_task_group() as group:
        for to, step in ((cache, 1), (other, -1), (cache, 2), (other, -3)):
            group.start_soon(write, to, step)
        group.start_soon(clear, other)
    assert (
        await server.value("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == 0
    )


# Connections


async def test_a_lost_connection_is_replaced(cache: PostgresCache, server: Server) -> None:
    await cache.aset(entries([1]))
    await server.terminate_others()
    assert await cache.aget([at(1)]) == {at(1): b"1"}
    await server.terminate_others()
    await cache.aset(entries([2]))
    await server.terminate_others()
    await cache.aclear()


async def test_beside_a_saver_it_uses_the_savers_connections_and_schema(database_url: str) -> None:
    async with PostgresSaver.from_conn_string(database_url, schema="own", max_size=1) as saver:
        await saver.setup()
        serde = JsonSerializer()
        cache = PostgresCache.beside(saver, serde=serde)
        assert cache.serde is serde
        fence = (await saver.aclaim(request(new_thread()))).fence
        for n in range(3):
            await saver.acommit(commit(fence, step=n))
            with anyio.fail_after(5):
                await cache.aset(entries([n]))
        async with saver.database.lender.lend() as session:
            rows = await (await session.connection.execute("SELECT count(*) FROM own.node_cache")).fetchall()
        assert rows == [(3,)]


async def test_an_applications_pool_is_used_as_it_is_and_left_as_it_was(database_url: str) -> None:
    settings = {"row_factory": dict_row}
    async with AsyncConnectionPool(database_url, min_size=1, max_size=1, open=False, kwargs=settings) as pool:
        cache = PostgresCache(pool)
        await cache.aset(entries([1]))
        assert await cache.aget([at(1)]) == {at(1): b"1"}
        async with pool.connection() as connection:
            assert connection.autocommit is False
            cursor = await connection.execute("SELECT 1 AS one")
            row: object = await cursor.fetchone()
            assert row == {"one": 1}


async def test_nothing_is_prepared_behind_a_pooler(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psycopg.ConnectionInfo, "backend_pid", 1)  # what a pooler tells its clients
    async with PostgresCache.from_conn_string(database_url) as cache:
        for n in range(8):
            await cache.aset(entries([n]))
            await cache.aget([at(n)])
        async with cache._database.lender.lend() as session:
            cursor = await session.connection.execute("SELECT count(*) FROM pg_prepared_statements")
            assert await cursor.fetchone() == (0,)


async def test_an_answer_that_does_not_come_is_waited_for_a_bounded_time(
    database_url: str, server: Server
) -> None:
    async with PostgresCache.from_conn_string(database_url, statement_seconds=0.3) as cache:
        await cache.aset(entries([1]))
        async with server.connection.transaction():
            await server.rows("LOCK TABLE perdure.node_cache")
            with anyio.fail_after(10), pytest.raises(SaverTimeoutError, match="did not answer in time"):
                await cache.aget([at(1)])
        assert await cache.aget([at(1)]) == {at(1): b"1"}


async def test_an_exhausted_pool_is_waited_for_a_bounded_time(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL", "psycopg.pool")
    async with PostgresCache.from_conn_string(
        database_url, min_size=0, max_size=1, connect_seconds=0.3
    ) as cache:
        assert cache._database.lender.pool.get_stats()["pool_size"] == 0
        async with cache._database.lender.lend():
            with pytest.raises(SaverTimeoutError, match=r"all 1 connections of the pool \(max_size 1\)"):
                await cache.aget([at(1)])


# What it says


async def test_a_schema_that_was_never_set_up_is_explained(empty_database_url: str) -> None:
    async with PostgresCache.from_conn_string(empty_database_url) as cache:
        remedy = r"`await cache\.setup\(\)`, or run `python -m perdure_migrations URL --schema perdure`"
        for call in (cache.aget([at(1)]), cache.aset(entries([1])), cache.aclear()):
            with pytest.raises(SchemaError, match=remedy) as failure:
                await call
            assert isinstance(failure.value.__cause__, psycopg.Error)
        await cache.setup()
        await cache.setup()
        await cache.aset(entries([1]))


async def test_a_schema_from_before_there_was_a_cache_serves_the_saver(
    saver: PostgresSaver, server: Server
) -> None:
    await server.rows("DROP TABLE perdure.node_cache")
    await server.rows("DELETE FROM perdure.migrations WHERE name = '0002_node_cache'")
    cache = PostgresCache.beside(saver)
    with pytest.raises(SchemaError, match=r"node_cache.*await cache\.setup"):
        await cache.aget([at(1)])
    fence = (await saver.aclaim(request(new_thread()))).fence
    await saver.acommit(commit(fence))
    assert await saver.aget_tuple(config(fence.thread_id)) is not None
    await saver.setup()
    await cache.aset(entries([1]))


async def test_a_key_that_a_text_column_cannot_hold_is_refused(cache: PostgresCache) -> None:
    for label in ("nul\0", "\ud800"):
        for call in (
            cache.aset({at(1, label): (b"", None)}),
            cache.aget([at(1, label)]),
            cache.aclear([(label,)]),
        ):
            with pytest.raises(UnserializableValueError, match="neither NUL nor lone surrogates"):
                await call


async def test_a_database_that_is_not_there_is_named() -> None:
    with pytest.raises(SaverUnavailableError, match=r"'agents' on 127\.0\.0\.1:1 ") as failure:
        async with PostgresCache.from_conn_string("postgresql://user:secret@127.0.0.1:1/agents"):
            pass
    assert "secret" not in str(failure.value)


async def test_an_address_that_is_none_is_refused_and_not_shown() -> None:
    with pytest.raises(ValueError, match="Pass postgresql://") as refused:
        async with PostgresCache.from_conn_string("SECRET"):
            pass
    assert "SECRET" not in str(refused.value)


def test_an_address_in_place_of_a_pool_is_refused() -> None:
    with pytest.raises(TypeError, match=r"PostgresCache\.from_conn_string.*PostgresCache\.beside"):
        PostgresCache("postgresql://localhost/x")  # type: ignore[arg-type]


async def test_another_schema_and_serializer_are_the_ones_that_were_given(database_url: str) -> None:
    serde = JsonSerializer()
    async with PostgresCache.from_conn_string(database_url, schema="odd /", serde=serde) as cache:
        await cache.setup()
        await cache.aset(entries([1]))
        assert cache.serde is serde
        pool = cache._database.lender.pool
        assert PostgresCache(pool, serde=serde).serde is serde
        assert await PostgresCache(pool, schema="odd /").aget([at(1)]) == {at(1): b"1"}
        async with PostgresCache.from_conn_string(database_url) as other:
            assert await other.aget([at(1)]) == {}


# In a run


RAN: list[int] = []


async def remembers(state: Any) -> Any:
    RAN.append(state["x"])
    return {"y": (state["x"], {"of": {1}})}


async def test_a_run_finds_what_a_run_with_another_pool_kept(
    cache: PostgresCache, saver: PostgresSaver, server: Server
) -> None:
    RAN.clear()
    graphs = [
        cached(chain(["a"], {"a": remembers}), each, "a", checkpointer=saver, name="agent")
        for each in (cache, PostgresCache.beside(saver))
    ]
    for graph in graphs:
        result = await graph.ainvoke({"x": 1}, thread(new_thread()))
        assert result == {"log": [], "x": 1, "y": (1, {"of": {1}})}
    assert RAN == [1]
    assert await server.rows("SELECT namespace, expires_at FROM perdure.node_cache") == [
        ("__pregel_ns_writes/agent/a/", None)
    ]
    await graphs[0].aclear_cache(["a"])
    await graphs[1].ainvoke({"x": 1}, thread(new_thread()))
    assert RAN == [1, 1]


async def test_a_run_goes_on_where_the_cache_has_no_table(
    saver: PostgresSaver, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    await server.rows("DROP TABLE perdure.node_cache")
    graph = cached(chain(["a"]), PostgresCache.beside(saver), "a", checkpointer=saver)
    assert await graph.ainvoke({}, thread(new_thread())) == {"log": ["a"]}
    assert "This run goes on without the cache: SchemaError" in caplog.text


PROGRAM = """
import asyncio, sys
from perdure_checkpointers.postgres import PostgresCache
from tests.unit.pregel.caching import cached
from tests.unit.pregel.graphs import chain

async def a(state):
    print("ran")
    return {"y": (1, {"x"})}

async def main():
    async with PostgresCache.from_conn_string(sys.argv[1]) as cache:
        graph = cached(chain(["a"], {"a": a}), cache, "a", name="agent")
        print(await graph.ainvoke({"x": 1, "y": {"b": 2, "a": 1}}))

asyncio.run(main())
"""


async def test_another_process_finds_what_this_kind_of_node_returned(database_url: str) -> None:
    said = []
    for seed in ("1", "2"):
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(path or "." for path in sys.path)}
        command = [sys.executable, "-c", PROGRAM, database_url]
        done = await anyio.run_process(command, env=environment, stderr=subprocess.STDOUT)
        said.append(done.stdout.decode().splitlines())
    assert said == [["ran", said[1][0]], ["{'log': [], 'x': 1, 'y': (1, {'x'})}"]]
