"""Connections that break, a pool that is empty, a database that is not there or not set up."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

import anyio
import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

import perdure_migrations
from perdure.checkpoint.base import ClaimRequest
from perdure.errors import SaverTimeoutError, SaverUnavailableError, SchemaError
from perdure_checkpointers.postgres import PostgresSaver
from tests import postgres
from tests.integration.postgres.proxy import counting_proxy
from tests.integration.postgres.threads import SUCCESS, Server, commit, config, new_thread, request

pytestmark = pytest.mark.usefixtures("quiet_pool")


@pytest.fixture
def quiet_pool(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL", "psycopg.pool")


async def test_every_connection_is_terminated_between_any_two_calls(
    saver: PostgresSaver, server: Server
) -> None:
    thread_id = new_thread()
    await server.terminate_others()
    fence = (await saver.aclaim(request(thread_id))).fence
    await server.terminate_others()
    step = commit(fence)
    await saver.acommit(step)
    await server.terminate_others()
    assert await saver.aget_tuple(config(thread_id)) is not None
    await server.terminate_others()
    saver.renew_seconds = 0.0
    await saver.arenew(fence)
    await server.terminate_others()
    await saver.arenew(fence)
    assert [found.config async for found in saver.alist(config(thread_id))] == [
        config_of(step.last_id, thread_id)
    ]
    await server.terminate_others()
    assert await saver.aorphans() == []
    await server.terminate_others()
    await saver.arelease(fence, SUCCESS)
    await server.terminate_others()
    await saver.adelete_thread(thread_id)


def config_of(checkpoint_id: str | None, thread_id: str) -> dict[str, object]:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": "", "checkpoint_id": checkpoint_id}}


async def test_connections_are_terminated_while_sixteen_runs_commit(
    saver: PostgresSaver, server: Server
) -> None:
    fences = [(await saver.aclaim(request(new_thread()))).fence for _ in range(16)]
    finished = 0

    async def work(index: int) -> None:
        nonlocal finished
        for step in range(15):
            await saver.acommit(commit(fences[index], step=step))
        finished += 1

    async with anyio.create_task_group() as group:
        for index in range(16):
            group.start_soon(work, index)
        for _ in range(3):
            await anyio.sleep(0.02)
            await server.terminate_others()
    assert finished == 16
    assert await server.value("SELECT count(*) FROM perdure.checkpoints") == 16 * 15


async def test_an_answer_that_got_lost_is_asked_for_again(database_url: str) -> None:
    async with counting_proxy(database_url) as wire, PostgresSaver.from_conn_string(wire.url) as saver:
        asked = request(new_thread())
        await saver.aget_tuple(config(asked.thread_id))
        wire.swallow_answers = 1
        claim = await saver.aclaim(asked)
        assert (claim.fence.epoch, claim.attempt) == (1, 1)
        for step in range(3):
            wire.swallow_answers = 1
            await saver.acommit(commit(claim.fence, step=step))
        wire.swallow_answers = 1
        await saver.acommit(commit(claim.fence, end=SUCCESS))
        together = [request(new_thread()) for _ in range(8)]
        wire.swallow_answers = 2
        async with anyio.create_task_group() as group:
            for each in together:
                group.start_soon(_has_epoch, saver, each, 1)
    async with PostgresSaver.from_conn_string(database_url) as saver:
        assert len([found async for found in saver.alist(config(asked.thread_id))]) == 4


async def _has_epoch(saver: PostgresSaver, asked: ClaimRequest, epoch: int) -> None:
    claim = await saver.aclaim(asked)
    assert (claim.fence.epoch, claim.attempt) == (epoch, 1)


async def test_an_exhausted_pool_is_waited_for_a_bounded_time(database_url: str) -> None:
    async with PostgresSaver.from_conn_string(database_url, max_size=2, connect_seconds=0.3) as saver:
        fences = [(await saver.aclaim(request(new_thread()))).fence for _ in range(20)]
        async with saver._database.lender.lend(), saver._database.lender.lend():
            with anyio.fail_after(10):
                for call in (saver.aget_tuple(config("t")), saver.aclaim(request("t"))):
                    with pytest.raises(
                        SaverTimeoutError, match=r"all 2 connections of the pool \(max_size 2\)"
                    ):
                        await call
                failures: list[Exception] = []
                async with anyio.create_task_group() as group:
                    for fence in fences:
                        group.start_soon(_collect_failure, saver, commit(fence), failures)
            assert len(failures) == 20
        for fence in fences:
            await saver.acommit(commit(fence))


async def _collect_failure(saver: PostgresSaver, item: object, failures: list[Exception]) -> None:
    try:
        await saver.acommit(item)  # type: ignore[arg-type]
    except SaverTimeoutError as error:
        failures.append(error)


async def test_a_database_that_went_away_is_waited_for_a_bounded_time(database_url: str) -> None:
    async with AsyncExitStack() as stack:
        async with counting_proxy(database_url) as wire:
            saver = await stack.enter_async_context(
                PostgresSaver.from_conn_string(wire.url, connect_seconds=0.5)
            )
            fence = (await saver.aclaim(request(new_thread()))).fence
        with anyio.fail_after(20):
            for call in (
                saver.acommit(commit(fence)),
                saver.aget_tuple(config("t")),
                saver.arenew(fence),
                saver.aclaim(request("t")),
            ):
                with pytest.raises(SaverUnavailableError, match=r"127\.0\.0\.1:\d+ .*refused"):
                    await call


async def test_a_server_that_only_reads_is_not_available(saver: PostgresSaver, server: Server) -> None:
    name = await server.value("SELECT current_database()")
    await server.rows(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    await server.terminate_others()
    with pytest.raises(SaverUnavailableError, match="read-only transaction"):
        await saver.aclaim(request(new_thread()))


async def test_renewal_needs_nothing_of_the_pool(database_url: str) -> None:
    async with PostgresSaver.from_conn_string(database_url, max_size=1) as saver:
        saver.renew_seconds = 0.0
        fence = (await saver.aclaim(request(new_thread()))).fence
        async with saver._database.lender.lend():
            with anyio.fail_after(5):
                await saver.arenew(fence)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


async def test_a_database_that_is_not_there_is_named_with_the_reason() -> None:
    port = _free_port()
    with pytest.raises(SaverUnavailableError, match=rf"'agents' on 127.0.0.1:{port} .*[Rr]efused") as failure:
        async with PostgresSaver.from_conn_string(f"postgresql://user:secret@127.0.0.1:{port}/agents"):
            pass
    assert "secret" not in str(failure.value)
    assert isinstance(failure.value.__cause__, psycopg.OperationalError)


async def test_a_host_that_does_not_answer_is_waited_for_a_bounded_time() -> None:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        with (
            anyio.fail_after(10),
            pytest.raises((SaverUnavailableError, SaverTimeoutError), match=f":{port}"),
        ):
            async with PostgresSaver.from_conn_string(
                f"postgresql://user@127.0.0.1:{port}/agents", connect_seconds=1.0
            ):
                pass


async def test_a_database_that_does_not_exist_is_named(database_url: str) -> None:
    with pytest.raises(SaverUnavailableError, match='database "nowhere" does not exist'):
        async with PostgresSaver.from_conn_string(postgres.on_database(database_url, "nowhere")):
            pass


async def test_a_schema_that_was_never_set_up_is_explained(empty_database_url: str) -> None:
    async with PostgresSaver.from_conn_string(empty_database_url) as saver:
        remedy = r"`await saver\.setup\(\)`, or run `python -m perdure_migrations URL --schema perdure`"
        for call in (
            saver.aget_tuple(config("t")),
            saver.aclaim(request("t")),
            saver.acommit(commit(None, thread_id="t")),
            saver.aorphans(),
            saver.adelete_thread("t"),
        ):
            with pytest.raises(SchemaError, match=remedy) as failure:
                await call
            assert isinstance(failure.value.__cause__, psycopg.Error)
        await saver.setup()
        await saver.setup()
        await saver.acommit(commit(None, thread_id="t"))


async def test_a_schema_of_another_name_is_one_of_its_own(saver: PostgresSaver, database_url: str) -> None:
    async with PostgresSaver.from_conn_string(database_url, schema='Odd "name" {x}') as odd:
        await odd.setup()
        thread_id = new_thread()
        fence = (await odd.aclaim(request(thread_id))).fence
        await odd.acommit(commit(fence, end=SUCCESS))
        assert await odd.aget_tuple(config(thread_id)) is not None
        assert await saver.aget_tuple(config(thread_id)) is None


async def test_a_newer_schema_is_refused_by_setup(saver: PostgresSaver, server: Server) -> None:
    await server.rows("INSERT INTO perdure.migrations (id, name, checksum) VALUES (9999, '9999_later', 'x')")
    newest = perdure_migrations.MIGRATIONS[-1].name
    with pytest.raises(SchemaError, match=f"9999_later.*{newest}.*Upgrade"):
        await saver.setup()


async def test_a_role_without_privileges_is_told_which(database_url: str, server: Server) -> None:
    async with _role(server, database_url) as url, PostgresSaver.from_conn_string(url) as saver:
        with pytest.raises(SchemaError, match="Grant it USAGE"):
            await saver.aget_tuple(config("t"))


@asynccontextmanager
async def _role(server: Server, url: str) -> AsyncIterator[str]:
    name = f"reader_{new_thread().replace('-', '')}"
    await server.rows(f"CREATE ROLE {name} LOGIN PASSWORD 'word'")
    try:
        parts = urlsplit(url)
        yield parts._replace(netloc=f"{name}:word@{parts.netloc.rpartition('@')[2]}").geturl()
    finally:
        await server.rows(f"DROP OWNED BY {name}")
        await server.rows(f"DROP ROLE {name}")


async def test_an_applications_pool_is_used_as_it_is_and_left_as_it_was(
    database_url: str, server: Server
) -> None:
    async with AsyncConnectionPool(
        database_url, min_size=1, max_size=2, open=False, kwargs={"row_factory": dict_row}
    ) as pool:
        saver = PostgresSaver(pool)
        thread_id = new_thread()
        claim = await saver.aclaim(request(thread_id))
        await saver.acommit(commit(claim.fence))
        await saver.aprune([new_thread()])
        saver.renew_seconds = 0.0
        await saver.arenew(claim.fence)
        await saver.arelease(claim.fence, SUCCESS)
        async with pool.connection() as connection:
            assert connection.autocommit is False
            assert connection.prepare_threshold == 5
            cursor = await connection.execute("SELECT 1 AS one")
            row: object = await cursor.fetchone()
            assert row == {"one": 1}


async def test_an_isolation_level_under_which_fences_would_not_hold_is_refused(
    database_url: str, server: Server
) -> None:
    name = postgres.database_name(database_url)
    await server.rows(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    with pytest.raises(SchemaError, match="serializable"):
        async with PostgresSaver.from_conn_string(database_url):
            pass


async def test_nothing_is_prepared_where_the_server_is_not_proven_to_be_the_same(
    database_url: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psycopg.ConnectionInfo, "backend_pid", 1)  # what a pooler tells its clients
    async with counting_proxy(database_url) as wire, PostgresSaver.from_conn_string(wire.url) as saver:
        thread_id = new_thread()
        fence = (await saver.aclaim(request(thread_id))).fence
        for step in range(8):
            await saver.acommit(commit(fence, step=step))
        async with saver._database.lender.lend() as session:
            cursor = await session.connection.execute("SELECT count(*) FROM pg_prepared_statements")
            assert await cursor.fetchone() == (0,)


async def test_a_claim_and_a_commit_are_one_round_trip_each(database_url: str) -> None:
    async with counting_proxy(database_url) as wire, PostgresSaver.from_conn_string(wire.url) as saver:
        await saver.aget_tuple(config("somebody to make the connection"))
        for _ in range(2):
            thread_id = new_thread()
            before = wire.round_trips
            fence = (await saver.aclaim(request(thread_id))).fence
            for step in range(10):
                await saver.acommit(commit(fence, step=step, end=SUCCESS if step == 9 else None))
            assert wire.round_trips - before == 11
            before = wire.round_trips
            await saver.aget_tuple(config(thread_id))
            assert wire.round_trips - before == 1


async def test_what_follows_in_turn_uses_one_connection_of_a_pool_of_its_own(database_url: str) -> None:
    async with PostgresSaver.from_conn_string(database_url, min_size=4) as saver:
        fence = (await saver.aclaim(request(new_thread()))).fence
        for step in range(10):
            await saver.acommit(commit(fence, step=step))
        lender = saver._database.lender
        (session,) = lender._at_hand
        pool = lender.pool
        assert pool.get_stats()["pool_available"] == 3
        session.lent_at -= 3600
        await saver.acommit(commit(fence))
        assert not lender._at_hand, "the pool replaces what is old, but only if it comes back"
        assert pool.get_stats()["pool_available"] == 4


async def test_planning_is_set_on_connections_of_its_own_and_not_behind_a_pooler(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def setting(saver: PostgresSaver) -> object:
        async with saver._database.lender.lend() as session:
            await saver._database.lender.prove(session)
            cursor = await session.connection.execute("SHOW plan_cache_mode")
            return await cursor.fetchone()

    async with AsyncConnectionPool(database_url, min_size=1, open=False) as pool:
        assert await setting(PostgresSaver(pool)) == ("auto",)
    async with PostgresSaver.from_conn_string(database_url) as saver:
        assert await setting(saver) == ("force_generic_plan",)
    monkeypatch.setattr(psycopg.ConnectionInfo, "backend_pid", 1)
    async with PostgresSaver.from_conn_string(database_url) as saver:
        assert await setting(saver) == ("auto",)


@pytest.mark.parametrize("address", ["postgresql+psycopg://u:SECRET@h/x", "SECRET"])
async def test_an_address_that_is_none_is_refused_and_not_shown(address: str) -> None:
    with pytest.raises(ValueError, match="Pass postgresql://") as refused:
        async with PostgresSaver.from_conn_string(address):
            pass
    assert "SECRET" not in str(refused.value)
    assert refused.value.__suppress_context__


def test_an_address_in_place_of_a_pool_is_refused() -> None:
    with pytest.raises(TypeError, match=r"async with PostgresSaver\.from_conn_string"):
        PostgresSaver("postgresql://localhost/x")  # type: ignore[arg-type]


async def test_a_lease_sets_when_it_is_renewed_and_given_up(database_url: str) -> None:
    async with PostgresSaver.from_conn_string(database_url, lease_seconds=6) as saver:
        assert (saver.renew_seconds, saver.stop_seconds, saver.lease_seconds) == (2, 4, 6)
