"""One live run per thread: claims, leases, orphans, on a real server."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

import anyio
import psycopg
import pytest

from perdure.checkpoint.base import Claim, ClaimRequest, Commit, Fence, RunEnd
from perdure.errors import SaverTimeoutError, StaleRunError, ThreadBusyError, UnserializableValueError
from perdure_checkpointers.postgres import PostgresSaver
from perdure_checkpointers.postgres.connections.lent import LentConnection
from perdure_checkpointers.postgres.queries import Statement
from tests.integration.postgres.threads import (
    SUCCESS,
    TABLES,
    Server,
    commit,
    config,
    new_thread,
    request,
    until_waiting,
)


async def test_a_claim_records_the_run_and_reads_the_head(saver: PostgresSaver, server: Server) -> None:
    thread_id = new_thread()
    first = await saver.aclaim(request(thread_id))
    assert first.head is None
    assert (first.fence.epoch, first.attempt, first.last_id) == (1, 1, None)
    step = commit(first.fence, end=SUCCESS)
    await saver.acommit(step)

    second = await saver.aclaim(request(thread_id, "second"))
    assert second.fence == Fence(thread_id=thread_id, run_id="second", epoch=2)
    assert second.last_id == step.last_id
    assert second.head == await saver.aget_tuple(config(thread_id))
    assert await server.rows(
        "SELECT run_id, status, input, config FROM perdure.runs ORDER BY started_at"
    ) == [
        (first.fence.run_id, "success", b'{"question":1}', {"recursion_limit": 7}),
        ("second", "running", b'{"question":1}', {"recursion_limit": 7}),
    ]


async def test_a_claim_reads_an_older_checkpoint_if_asked(saver: PostgresSaver) -> None:
    thread_id = new_thread()
    fence = (await saver.aclaim(request(thread_id))).fence
    old = commit(fence, value="old")
    await saver.acommit(old)
    await saver.acommit(commit(fence, value="new", end=SUCCESS))

    claim = await saver.aclaim(replace(request(thread_id), checkpoint_id=old.last_id))
    assert claim.head is not None
    assert claim.head.checkpoint["channel_values"] == {"channel": "old"}


async def test_a_busy_thread_says_who_holds_it_and_since_when(
    saver: PostgresSaver, other_saver: PostgresSaver, server: Server
) -> None:
    thread_id = new_thread()
    await saver.aclaim(request(thread_id, "holder"))
    since = await server.value("SELECT claimed_at FROM perdure.threads")
    with pytest.raises(ThreadBusyError, match=r"run 'holder' .* on host .*, process \d+, since ") as failure:
        await other_saver.aclaim(request(thread_id))
    assert since.isoformat(timespec="seconds") in str(failure.value)
    assert await server.value("SELECT count(*) FROM perdure.runs") == 1


async def test_a_repeated_claim_answers_with_the_same_epoch(saver: PostgresSaver, server: Server) -> None:
    asked = request(new_thread())
    first = await saver.aclaim(asked)
    assert await saver.aclaim(asked) == first
    assert await server.value("SELECT count(*) FROM perdure.runs") == 1


async def test_a_claim_is_not_repeated_over_its_own_recovery(saver: PostgresSaver, server: Server) -> None:
    asked = request(new_thread())
    first = await saver.aclaim(asked)
    await server.expire(asked.thread_id)
    await saver.aclaim(replace(asked, successor_of=first.fence.epoch))
    with pytest.raises(ThreadBusyError):
        await saver.aclaim(asked)


async def test_of_two_claimers_exactly_one_is_granted(
    saver: PostgresSaver, other_saver: PostgresSaver
) -> None:
    for _ in range(20):
        assert len(await _granted(request(new_thread()), saver, other_saver)) == 1


async def test_of_two_recoverers_exactly_one_is_granted(
    saver: PostgresSaver, other_saver: PostgresSaver, server: Server
) -> None:
    for savers in [(saver, other_saver), (saver, saver)] * 10:
        lost = (await saver.aclaim(request(new_thread()))).fence
        await server.expire(lost.thread_id)
        asked = request(lost.thread_id, lost.run_id, successor_of=lost.epoch)
        granted = await _granted(asked, *savers)
        assert [claim.fence.epoch for claim in granted] == [2]
        assert [claim.attempt for claim in granted] == [2]


async def _granted(asked: ClaimRequest, *savers: PostgresSaver) -> list[Claim]:
    granted: list[Claim] = []

    async def claim(saver: PostgresSaver, asked: ClaimRequest) -> None:
        with suppress(ThreadBusyError):
            granted.append(await saver.aclaim(asked))

    async with anyio.create_task_group() as group:
        for saver in savers:
            mine = asked if asked.successor_of is not None else request(asked.thread_id)
            group.start_soon(claim, saver, mine)
    return granted


async def test_a_recovery_of_a_run_that_is_gone_touches_nothing(saver: PostgresSaver, server: Server) -> None:
    asked = request(new_thread())
    with pytest.raises(StaleRunError, match="no longer an orphan"):
        await saver.aclaim(replace(asked, successor_of=1))
    fence = (await saver.aclaim(asked)).fence
    for epoch in (0, 1, 2):
        with pytest.raises(ThreadBusyError, match="Leave it alone"):
            await saver.aclaim(replace(asked, successor_of=epoch))
    await saver.arelease(fence, SUCCESS)
    with pytest.raises(StaleRunError, match="no longer an orphan"):
        await saver.aclaim(replace(asked, successor_of=1))
    assert await server.rows("SELECT epoch, run_id FROM perdure.threads") == [(1, None)]


async def test_a_thread_whose_lease_ran_out_is_free_and_its_run_is_marked(
    saver: PostgresSaver, server: Server
) -> None:
    lost = (await saver.aclaim(request(new_thread(), "lost"))).fence
    await server.expire(lost.thread_id)
    await saver.aclaim(request(lost.thread_id, "next"))
    assert await server.rows("SELECT status, error FROM perdure.runs WHERE run_id = 'lost'") == [
        ("error", "its lease ran out; run next took the thread")
    ]
    assert await saver.aorphans() == []


async def test_a_frozen_writer_is_refused_after_its_successor(
    saver: PostgresSaver, other_saver: PostgresSaver, server: Server
) -> None:
    frozen = (await saver.aclaim(request(new_thread()))).fence
    await server.expire(frozen.thread_id)
    after = await other_saver.aclaim(request(frozen.thread_id, frozen.run_id, successor_of=frozen.epoch))
    await other_saver.acommit(commit(after.fence, end=SUCCESS))
    before = await _everything(server)

    nothing = Commit(thread_id=frozen.thread_id, fence=frozen)
    for late in (commit(frozen), commit(frozen, end=SUCCESS), nothing, replace(nothing, end=SUCCESS)):
        with pytest.raises(StaleRunError, match="lost thread"):
            await saver.acommit(late)
    with pytest.raises(StaleRunError):
        await saver.arenew(frozen)
    await saver.arelease(frozen, RunEnd(status="error", error="late"))
    assert await _everything(server) == before


async def _everything(server: Server) -> list[list[tuple[object, ...]]]:
    return [await server.rows("TABLE perdure." + table) for table in TABLES]


async def test_orphans_are_listed_oldest_first_with_what_a_successor_needs(
    saver: PostgresSaver, server: Server
) -> None:
    older = (await saver.aclaim(request(new_thread()))).fence
    newer = (await saver.aclaim(request(new_thread()))).fence
    await saver.aclaim(request(new_thread()))
    await saver.acommit(commit(newer))
    for fence in (older, newer):
        await server.expire(fence.thread_id)

    orphans = await saver.aorphans()
    assert [(orphan.run_id, orphan.started) for orphan in orphans] == [
        (older.run_id, False),
        (newer.run_id, True),
    ]
    assert orphans[0].input == b'{"question":1}'
    assert orphans[0].config == {"recursion_limit": 7}
    assert (orphans[0].graph, orphans[0].signature, orphans[0].attempt) == ("graph", "signature", 1)
    assert await saver.aorphans(graph="another") == []
    assert await saver.aorphans(thread_id=newer.thread_id) == orphans[1:]
    assert len(await saver.aorphans(limit=1)) == 1


async def test_a_run_on_an_old_thread_has_started_only_with_a_checkpoint_of_its_own(
    saver: PostgresSaver, server: Server
) -> None:
    first = (await saver.aclaim(request(new_thread()))).fence
    await saver.acommit(commit(first, end=SUCCESS))
    second = (await saver.aclaim(request(first.thread_id))).fence
    await server.expire(first.thread_id)
    assert [orphan.started for orphan in await saver.aorphans()] == [False]
    third = await saver.aclaim(request(first.thread_id, second.run_id, successor_of=second.epoch))
    await saver.acommit(commit(third.fence))
    await server.expire(first.thread_id)
    assert [(orphan.started, orphan.attempt) for orphan in await saver.aorphans()] == [(True, 2)]


async def test_a_renewal_covers_all_claims_in_one_statement_and_the_next_call_uses_it(
    saver: PostgresSaver, server: Server
) -> None:
    saver.lease_seconds, saver.renew_seconds = 1000.0, 0.0
    fences = [(await saver.aclaim(request(new_thread()))).fence for _ in range(5)]
    for fence in fences:
        await server.expire(fence.thread_id)
    await saver.arenew(fences[0])
    left = await server.rows("SELECT lease_expires > now() + interval '900 seconds' FROM perdure.threads")
    assert left == [(True,)] * 5

    saver.renew_seconds = 10.0
    await server.expire(fences[1].thread_id)
    await saver.arenew(fences[1])
    assert await server.value("SELECT count(*) FROM perdure.threads WHERE lease_expires < now()") == 1


async def test_a_renewal_passes_by_a_locked_row_and_says_so(saver: PostgresSaver, server: Server) -> None:
    locked = (await saver.aclaim(request(new_thread()))).fence
    free = (await saver.aclaim(request(new_thread()))).fence
    await server.expire(free.thread_id)
    async with server.connection.transaction():
        await server.rows("SELECT FROM perdure.threads WHERE thread_id = %s FOR UPDATE", locked.thread_id)
        with pytest.raises(SaverTimeoutError, match="could not be renewed"):
            await saver.arenew(locked)
        assert await saver.aorphans() == []
    await saver.arenew(locked)


async def test_the_connection_of_renewals_is_closed_with_the_last_claim(
    saver: PostgresSaver, server: Server
) -> None:
    count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    fence = (await saver.aclaim(request(new_thread()))).fence
    saver.renew_seconds = 0.0
    before = await server.value(count)
    await saver.arenew(fence)
    assert await server.value(count) == before + 1
    await saver.acommit(commit(fence, end=SUCCESS))
    await server.until(count, before)


async def test_a_renewal_that_is_cut_off_in_its_second_try_leaves_no_connection_behind(
    saver: PostgresSaver, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    fence = (await saver.aclaim(request(new_thread()))).fence
    saver.renew_seconds = 0.0
    before = await server.value(count)
    await saver.arenew(fence)
    errors = [asyncio.CancelledError(), psycopg.OperationalError("the connection is lost")]
    fetch = LentConnection.fetch

    async def fail(self: LentConnection, query: Statement[Any], parameters: Any) -> Any:
        if query == saver.database.queries.renew:
            raise errors.pop()
        return await fetch(self, query, parameters)

    with monkeypatch.context() as patch:
        patch.setattr(LentConnection, "fetch", fail)
        with pytest.raises(asyncio.CancelledError):
            await saver.arenew(fence)
    await server.until(count, before)
    await saver.arenew(fence)


async def test_a_claim_that_waited_for_the_last_commit_reads_what_that_stored(
    saver: PostgresSaver, server: Server
) -> None:
    thread_id = new_thread()
    first = (await saver.aclaim(request(thread_id))).fence
    step = commit(first)
    await saver.acommit(step)
    claims: list[Claim] = []

    async def claim() -> None:
        claims.append(await saver.aclaim(request(thread_id)))

    async with anyio.create_task_group() as group, server.connection.transaction():
        # What the last commit of the first run does, stretched out.
        await server.rows(
            "UPDATE perdure.threads SET run_id = NULL, lease_expires = NULL, commits = commits + 1"
            " WHERE thread_id = %s",
            thread_id,
        )
        await server.rows(
            "UPDATE perdure.task_writes SET payload = convert_to('\"late\"', 'utf8') WHERE thread_id = %s",
            thread_id,
        )
        group.start_soon(claim)
        await until_waiting(server)
    assert claims[0].head is not None
    assert claims[0].head.pending_writes == [("task", "channel", "late")]


async def test_a_cancelled_claim_gives_the_thread_back(saver: PostgresSaver, server: Server) -> None:
    thread_id = new_thread()
    fence = (await saver.aclaim(request(thread_id))).fence
    await server.expire(thread_id)
    async with anyio.create_task_group() as group:
        with anyio.CancelScope(shield=True):
            async with server.connection.transaction():
                await server.rows("SELECT FROM perdure.threads WHERE thread_id = %s FOR UPDATE", thread_id)
                group.start_soon(saver.aclaim, request(thread_id, "cancelled"))
                await until_waiting(server)
                group.cancel_scope.cancel()
    assert await server.rows("SELECT run_id, status FROM perdure.threads") == [(None, "cancelled")]
    assert await server.value("SELECT status FROM perdure.runs WHERE run_id = 'cancelled'") == "cancelled"
    assert await saver.aorphans() == []
    assert (await saver.aclaim(request(thread_id))).fence.epoch == fence.epoch + 2


# Claims that arrive together


async def claims_at_once(saver: PostgresSaver, *requests: ClaimRequest) -> list[Claim | Exception]:
    return list(await asyncio.gather(*map(saver.aclaim, requests), return_exceptions=True))  # type: ignore[arg-type]


async def test_claims_that_arrive_together_leave_in_a_few_statements(
    saver: PostgresSaver, server: Server, statements: list[bytes]
) -> None:
    threads = [new_thread() for _ in range(64)]
    for epoch in (1, 2):
        statements.clear()
        asked = [request(thread) for thread in threads]
        claims = await claims_at_once(saver, *asked)
        assert sum(b"threads" in statement for statement in statements) <= 3
        fences = [Fence(thread_id=each.thread_id, run_id=each.run_id, epoch=epoch) for each in asked]
        assert [isinstance(claim, Claim) and claim.fence for claim in claims] == fences
        assert await server.value("SELECT count(*) FROM perdure.runs WHERE status = 'running'") == 64
        heads = [await saver.aget_tuple(config(thread)) for thread in threads]
        assert [isinstance(claim, Claim) and claim.head for claim in claims] == heads
        for fence in fences:
            await saver.acommit(commit(fence, value=fence.thread_id, end=SUCCESS))


async def test_of_claims_that_arrive_together_each_has_its_own_answer(
    saver: PostgresSaver, other_saver: PostgresSaver, server: Server
) -> None:
    held, lapsed, used, locked, twice = (new_thread() for _ in range(5))
    await other_saver.aclaim(request(held, "holder"))
    await other_saver.aclaim(request(lapsed, "lapsed"))
    await server.expire(lapsed)
    fence = (await saver.aclaim(request(used))).fence
    await saver.acommit(commit(fence, value="kept", end=SUCCESS))
    await saver.arelease((await saver.aclaim(request(locked))).fence, SUCCESS)
    again = request(new_thread())
    first = await saver.aclaim(again)

    asked = [request(thread) for thread in (new_thread(), held, lapsed, used, locked, twice, twice, "a\0b")]
    found: list[Claim | Exception] = []

    async def claim() -> None:
        found.extend(await claims_at_once(saver, *asked, again))

    async with anyio.create_task_group() as group, server.connection.transaction():
        await server.rows("SELECT FROM perdure.threads WHERE thread_id = %s FOR UPDATE", locked)
        group.start_soon(claim)
        await until_waiting(server)
    kinds = [type(answer) for answer in found]
    assert kinds[:5] == [Claim, ThreadBusyError, Claim, Claim, Claim]
    assert set(kinds[5:7]) == {Claim, ThreadBusyError}
    assert (kinds[7], found[8]) == (UnserializableValueError, first)
    assert "'holder'" in str(found[1])
    assert [isinstance(found[index], Claim) and found[index].fence.epoch for index in (2, 3, 4)] == [2, 2, 2]  # type: ignore[union-attr]
    assert found[3].head == await saver.aget_tuple(config(used))  # type: ignore[union-attr]
    assert await server.value("SELECT status FROM perdure.runs WHERE run_id = 'lapsed'") == "error"


async def test_claims_cancelled_among_others_leave_no_thread_held(
    saver: PostgresSaver, server: Server
) -> None:
    """Cancel by scopes, from which sent statements are shielded, and by Task.cancel."""
    for turns in range(1, 25):
        asked = [request(new_thread()) for _ in range(12)]
        scopes = [anyio.CancelScope() for _ in asked]
        tasks = [
            asyncio.create_task(_in_scope(scope, saver, each))
            for scope, each in zip(scopes, asked, strict=True)
        ]
        for _ in range(turns):
            await asyncio.sleep(0)
        for index in (0, 1, 5):
            tasks[index].cancel()
        for index in (2, 3, 7):
            scopes[index].cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        kept = [answer.fence.thread_id for answer in found if isinstance(answer, Claim)]
        assert {asked[index].thread_id for index in (4, 6, 8, 9, 10, 11)} <= set(kept)
        running = await server.rows("SELECT thread_id FROM perdure.threads WHERE run_id IS NOT NULL")
        assert sorted(kept) == sorted(thread for (thread,) in running)
        for answer in found:
            if isinstance(answer, Claim):
                await saver.arelease(answer.fence, SUCCESS)


async def _in_scope(scope: anyio.CancelScope, saver: PostgresSaver, asked: ClaimRequest) -> Claim | None:
    with scope:
        return await saver.aclaim(asked)
    return None
