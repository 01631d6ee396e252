"""Commits that gather leave together: in order, each with its own answer."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import anyio
import orjson
import pytest
from psycopg import AsyncRawCursor
from psycopg_pool import AsyncConnectionPool

from perdure.checkpoint.base import Commit, Fence
from perdure.errors import SaverTimeoutError, StaleRunError, UnserializableValueError
from perdure_checkpointers.postgres import PostgresSaver
from perdure_checkpointers.postgres.commits.batch import Batch, Encoded
from tests.integration.postgres.threads import (
    SUCCESS,
    Server,
    commit,
    config,
    new_thread,
    pending,
    request,
    until_waiting,
)


async def claimed(saver: PostgresSaver, count: int) -> list[Fence]:
    return [(await saver.aclaim(request(new_thread()))).fence for _ in range(count)]


async def outcomes(saver: PostgresSaver, *commits: Commit) -> list[Exception | None]:
    """Hand all of them over at once; what became of each."""
    found: list[Exception | None] = [None] * len(commits)

    async def hand_over(index: int) -> None:
        try:
            await saver.acommit(commits[index])
        except Exception as error:
            found[index] = error

    async with anyio.create_task_group() as group:
        for index in range(len(commits)):
            group.start_soon(hand_over, index)
    return found


async def test_sixty_four_threads_leave_in_a_handful_of_statements(
    saver: PostgresSaver, server: Server, statements: list[bytes]
) -> None:
    fences = await claimed(saver, 64)
    statements.clear()
    assert await outcomes(saver, *map(commit, fences)) == [None] * 64
    assert len(statements) <= 6
    assert await server.value("SELECT count(DISTINCT thread_id) FROM perdure.checkpoints") == 64
    assert await server.value("SELECT count(*) FROM perdure.task_writes") == 64


async def test_commits_of_one_thread_are_stored_in_the_order_in_which_they_were_handed_over(
    saver: PostgresSaver, server: Server
) -> None:
    fence, *others = await claimed(saver, 9)
    steps = [commit(fence, step=step) for step in range(30)]
    mixed = [item for step in steps for item in (step, *(commit(other) for other in others))]
    assert await outcomes(saver, *mixed) == [None] * len(mixed)
    stored = await server.rows(
        "SELECT checkpoint_id FROM perdure.checkpoints WHERE thread_id = %s"
        " ORDER BY xmin::text::bigint, checkpoint_id",
        fence.thread_id,
    )
    assert [checkpoint_id for (checkpoint_id,) in stored] == [step.last_id for step in steps]
    assert await server.value(
        "SELECT last_id FROM perdure.threads WHERE thread_id = %s", fence.thread_id
    ) == max(str(step.last_id) for step in steps)


async def test_the_first_write_of_a_slot_stays_and_a_control_write_is_overwritten(
    saver: PostgresSaver,
) -> None:
    (fence,) = await claimed(saver, 1)
    step = commit(fence, writes=0)
    assert step.last_id is not None
    await saver.acommit(step)
    slots = [(0, "first"), (0, "second"), (-3, "asked"), (-3, "asked again")]
    writes = [
        Commit(thread_id=fence.thread_id, fence=fence, writes=[pending(step.last_id, *slot)])
        for slot in slots
    ]
    for _ in range(2):  # together, and each by itself
        assert await outcomes(saver, *writes) == [None] * 4
        found = await saver.aget_tuple(config(fence.thread_id))
        assert found is not None
        assert found.pending_writes == [("task", "channel", "asked again"), ("task", "channel", "first")]
        for single in writes:
            await saver.acommit(single)


async def test_the_stale_of_a_batch_are_refused_and_the_others_stored(
    saver: PostgresSaver, other_saver: PostgresSaver, server: Server
) -> None:
    fences = await claimed(saver, 8)
    for fence in fences[:4]:
        await server.expire(fence.thread_id)
        await other_saver.aclaim(request(fence.thread_id))
    found = await outcomes(saver, *map(commit, fences))
    assert [type(error) for error in found[:4]] == [StaleRunError] * 4
    assert found[4:] == [None] * 4
    assert await server.value("SELECT count(*) FROM perdure.checkpoints") == 4
    assert await server.value("SELECT count(*) FROM perdure.channel_blobs") == 4
    assert await server.value("SELECT count(*) FROM perdure.task_writes") == 4


async def test_a_new_claim_of_the_same_thread_does_not_suffer_from_the_old_ones_commit(
    saver: PostgresSaver, server: Server
) -> None:
    (old,) = await claimed(saver, 1)
    await server.expire(old.thread_id)
    new = (await saver.aclaim(request(old.thread_id))).fence
    found = await outcomes(saver, commit(new), commit(old), commit(new), commit(old))
    assert [type(error) for error in found] == [type(None), StaleRunError, type(None), StaleRunError]


async def test_a_deleted_thread_is_lost(saver: PostgresSaver, server: Server) -> None:
    (fence,) = await claimed(saver, 1)
    await server.expire(fence.thread_id)
    await saver.adelete_thread(fence.thread_id)
    with pytest.raises(StaleRunError, match="deleted"):
        await saver.acommit(commit(fence))
    again = (await saver.aclaim(request(fence.thread_id))).fence
    assert again.epoch == fence.epoch
    with pytest.raises(StaleRunError):
        await saver.acommit(commit(fence))


async def test_what_was_stored_is_accepted_again_though_the_lease_moved(
    saver: PostgresSaver, other_saver: PostgresSaver, server: Server
) -> None:
    (fence,) = await claimed(saver, 1)
    stored, lost = commit(fence), commit(fence)
    await saver.acommit(stored)
    await server.expire(fence.thread_id)
    await other_saver.aclaim(request(fence.thread_id))
    assert [type(error) for error in await outcomes(saver, stored, lost)] == [type(None), StaleRunError]


async def test_the_end_of_a_run_is_accepted_again(saver: PostgresSaver) -> None:
    (fence,) = await claimed(saver, 1)
    end = Commit(thread_id=fence.thread_id, fence=fence, end=SUCCESS)
    await saver.acommit(end)
    await saver.acommit(end)
    with pytest.raises(StaleRunError):
        await saver.acommit(replace(end, end=replace(SUCCESS, status="error", error="of another kind")))


async def test_a_locked_thread_keeps_nobody_else_waiting(saver: PostgresSaver, server: Server) -> None:
    locked, *free = await claimed(saver, 16)
    steps = [commit(locked, step=step) for step in range(3)]
    done: list[str] = []

    async def hand_over(step: Commit) -> None:
        await saver.acommit(step)
        done.append(str(step.last_id))

    async with anyio.create_task_group() as group, server.connection.transaction():
        await server.rows("SELECT FROM perdure.threads WHERE thread_id = %s FOR UPDATE", locked.thread_id)
        for step in steps:
            group.start_soon(hand_over, step)
        await until_waiting(server)
        for _ in range(3):
            assert await outcomes(saver, *map(commit, free)) == [None] * len(free)
        for fence in free:
            assert await saver.aget_tuple(config(fence.thread_id)) is not None
        assert await saver.aget_tuple(config(locked.thread_id)) is None
        late = commit(locked, step=3)
        group.start_soon(hand_over, late)
        assert done == []
    assert done == [str(step.last_id) for step in (*steps, late)]
    await saver.acommit(commit(locked, end=SUCCESS))
    assert not saver._commits._detours


async def test_a_thread_that_stays_locked_is_given_up_in_time_and_leaves_no_statement_behind(
    database_url: str, server: Server
) -> None:
    async with PostgresSaver.from_conn_string(database_url, statement_seconds=0.3) as saver:
        (fence,) = await claimed(saver, 1)
        async with server.connection.transaction():
            await server.rows("SELECT FROM perdure.threads WHERE thread_id = %s FOR UPDATE", fence.thread_id)
            with pytest.raises(SaverTimeoutError, match="did not answer in time"):
                await saver.acommit(commit(fence))
            await until_waiting(server, 0)
        await saver.acommit(commit(fence))
    assert await server.value("SELECT count(*) FROM perdure.checkpoints") == 1


async def test_only_the_guilty_commit_of_a_batch_fails_and_its_followers(
    saver: PostgresSaver, server: Server
) -> None:
    fences = await claimed(saver, 12)
    bad = commit(fences[5])
    bad = replace(bad, writes=[pending(str(bad.last_id), 0, task_id="a\0b")])
    after = commit(fences[5])
    others = [commit(fence) for fence in fences if fence is not fences[5]]
    found = await outcomes(saver, *others[:6], bad, after, *others[6:])
    assert [type(error) for error in found[6:8]] == [UnserializableValueError] * 2
    assert found[:6] + found[8:] == [None] * 11
    assert await server.value("SELECT count(*) FROM perdure.checkpoints") == 11
    await saver.acommit(commit(fences[5]))


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b"])
async def test_what_a_column_cannot_hold_is_refused_before_anything_is_written(
    saver: PostgresSaver, server: Server, text: str
) -> None:
    (fence,) = await claimed(saver, 1)
    good = commit(fence)
    row, blob = good.checkpoints[0], good.blobs[0]
    bad = [
        replace(good, checkpoints=[row._replace(metadata={"note": [{"deep": text}]})]),
        replace(good, checkpoints=[row._replace(metadata={text: 1})]),
        replace(good, blobs=[blob._replace(channel=text)]),
        replace(good, writes=[pending(str(good.last_id), 0, task_id=text)]),
    ]
    if text == "a\0b":
        bad.append(replace(good, checkpoints=[row._replace(versions=orjson.dumps({text: "1"}))]))
    for each in bad:
        with pytest.raises(UnserializableValueError):
            await saver.acommit(each)
    for table in ("checkpoints", "channel_blobs", "task_writes"):
        assert await server.rows("TABLE perdure." + table) == []
    await saver.acommit(good)


async def test_text_that_looks_like_an_escape_is_stored(saver: PostgresSaver) -> None:
    (fence,) = await claimed(saver, 1)
    await saver.acommit(commit(fence, metadata={"note": "\\u0000"}))
    found = await saver.aget_tuple(config(fence.thread_id))
    assert found is not None
    assert dict(found.metadata)["note"] == "\\u0000"


async def test_a_cancelled_commit_takes_nobody_with_it_and_leaves_no_hole(
    saver: PostgresSaver, server: Server
) -> None:
    fences = await claimed(saver, 6)
    for cancelled in range(12):
        first = [commit(fence) for fence in fences]
        second = [commit(fence) for fence in fences]
        found: list[list[Exception | None]] = []

        async def hand_over(commits: list[Commit], found: list[list[Exception | None]] = found) -> None:
            found.append(await outcomes(saver, *commits))

        async with anyio.create_task_group() as group:
            scopes = []
            for item in first:
                scope = anyio.CancelScope()
                scopes.append(scope)
                group.start_soon(_in_scope, scope, saver, item)
            group.start_soon(hand_over, second)
            for _ in range(cancelled):
                await anyio.lowlevel.checkpoint()
            scopes[0].cancel()
            scopes[-1].cancel()
        assert found == [[None] * 6]
        stored = {row[0] for row in await server.rows("SELECT checkpoint_id FROM perdure.checkpoints")}
        assert {item.last_id for item in (*first[1:-1], *second)} <= stored


async def test_a_leader_whose_task_is_cancelled_hands_the_batch_on(saver: PostgresSaver) -> None:
    """Not by a scope, which the leader is shielded from, but as wait_for and Task.cancel do it."""
    fences = await claimed(saver, 20)
    for turns in range(1, 25):
        tasks = [asyncio.create_task(saver.acommit(commit(fence))) for fence in fences]
        for _ in range(turns):
            await asyncio.sleep(0)
        for task in tasks[:2]:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert found[2:] == [None] * 18
        assert {type(outcome) for outcome in found[:2]} <= {asyncio.CancelledError, type(None)}


async def _in_scope(scope: anyio.CancelScope, saver: PostgresSaver, item: Commit) -> None:
    with scope:
        await saver.acommit(item)


async def test_commits_without_a_claim_make_their_thread_and_merge(
    saver: PostgresSaver, server: Server
) -> None:
    thread_id = new_thread()
    steps = [commit(None, thread_id=thread_id, step=step) for step in range(10)]
    assert await outcomes(saver, *steps) == [None] * 10
    assert await server.rows("SELECT epoch, run_id, last_id FROM perdure.threads") == [
        (0, None, steps[-1].last_id)
    ]
    assert not saver._commits._unfenced
    assert (await saver.aclaim(request(thread_id))).last_id == steps[-1].last_id


async def test_many_writers_of_many_threads_never_deadlock(
    saver: PostgresSaver, other_saver: PostgresSaver
) -> None:
    saver.renew_seconds = other_saver.renew_seconds = 0.0
    owned = [(each, await claimed(each, 20)) for each in (saver, other_saver)]

    async def work(saver: PostgresSaver, fence: Fence) -> None:
        for step in range(8):
            await saver.acommit(commit(fence, step=step))
            await saver.arenew(fence)

    async with anyio.create_task_group() as group:
        for each, fences in owned:
            for fence in fences:
                group.start_soon(work, each, fence)
        for _ in range(5):
            await other_saver.aprune([new_thread() for _ in range(3)])


async def test_one_plan_is_made_for_commits_of_any_size_and_kept(database_url: str, server: Server) -> None:
    pool = AsyncConnectionPool(database_url, min_size=1, max_size=1, open=False)
    # On a connection of its own the saver says so; elsewhere Postgres makes five before it compares.
    async with PostgresSaver.from_conn_string(database_url) as own, pool:
        for saver, most in ((own, 0), (PostgresSaver(pool), 5)):
            fences = await claimed(saver, 40)
            for _ in range(10):
                await outcomes(saver, *map(commit, fences))
            await server.rows("ANALYZE")
            for size in (1, 2, 1, 30, 1, 5, 1, 1, 1, 1, 1, 1):
                await outcomes(saver, *map(commit, fences[:size]))
            async with saver._database.lender.lend() as session:
                cursor = await session.connection.execute(
                    "SELECT custom_plans FROM pg_prepared_statements"
                    " WHERE statement LIKE '%stored_checkpoints%'"
                )
                made = [row[0] for row in await cursor.fetchall()]
            assert made
            assert max(made) <= most


async def test_a_plan_made_while_there_were_no_runs_does_not_read_all_of_them(
    saver: PostgresSaver, server: Server
) -> None:
    fences = await claimed(saver, 8)
    await server.rows("DELETE FROM perdure.runs")
    await server.rows("VACUUM ANALYZE perdure.runs")
    database = saver._database
    batch = Batch([Encoded.of(commit(fence)) for fence in fences], format=1).of_many()
    async with database.lender.lend() as session:
        cursor = AsyncRawCursor(session.connection)
        query = database.queries.commit
        await cursor.execute(b"EXPLAIN " + query.text, [batch[name] for name in query.names])
        plan = [str(line) for (line,) in await cursor.fetchall()]
    (place,) = [index for index, line in enumerate(plan) if "Scan using runs_pkey" in line]
    assert "Index Cond" in plan[place + 1]
