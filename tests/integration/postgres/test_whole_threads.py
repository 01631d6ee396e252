"""Deleting, pruning and copying, while others write."""

from __future__ import annotations

import anyio

from perdure_checkpointers.postgres import PostgresSaver
from tests.integration.postgres.threads import (
    TABLES,
    Server,
    commit,
    config,
    new_thread,
    request,
    until_waiting,
)


async def test_nothing_of_a_deleted_thread_is_left_in_any_table(saver: PostgresSaver, server: Server) -> None:
    fence = (await saver.aclaim(request(new_thread()))).fence
    for step in range(3):
        await saver.acommit(commit(fence, step=step))
    await saver.adelete_thread(fence.thread_id)
    assert [await server.rows("TABLE perdure." + table) for table in TABLES] == [[]] * len(TABLES)


async def test_a_deletion_that_waited_for_a_commit_deletes_what_that_stored(
    saver: PostgresSaver, server: Server
) -> None:
    fence = (await saver.aclaim(request(new_thread()))).fence
    await saver.acommit(commit(fence))
    async with anyio.create_task_group() as group, server.connection.transaction():
        await server.rows("UPDATE perdure.threads SET commits = commits + 1")
        await server.rows(
            "INSERT INTO perdure.task_writes SELECT thread_id, 'late', checkpoint_id, task_id, idx, format,"
            " task_path, channel, payload FROM perdure.task_writes"
        )
        group.start_soon(saver.adelete_thread, fence.thread_id)
        await until_waiting(server)
    assert await server.rows("TABLE perdure.task_writes") == []


async def test_prunes_of_overlapping_sets_and_commits_do_not_deadlock(
    saver: PostgresSaver, other_saver: PostgresSaver
) -> None:
    fences = [(await saver.aclaim(request(new_thread()))).fence for _ in range(12)]
    threads = [fence.thread_id for fence in fences]

    async def write(index: int) -> None:
        for step in range(10):
            await saver.acommit(commit(fences[index], value=step, step=step))

    async def prune(pruner: PostgresSaver, order: int) -> None:
        for _ in range(10):
            await pruner.aprune(threads[::order])

    async with anyio.create_task_group() as group:
        for index in range(12):
            group.start_soon(write, index)
        group.start_soon(prune, saver, 1)
        group.start_soon(prune, other_saver, -1)
    await saver.aprune(threads)
    for thread_id in threads:
        found = await saver.aget_tuple(config(thread_id))
        assert found is not None
        assert found.checkpoint["channel_values"] == {"channel": 9}
        assert len([item async for item in saver.alist(config(thread_id))]) == 1


async def test_pruning_leaves_only_what_the_newest_refers_to(saver: PostgresSaver, server: Server) -> None:
    fence = (await saver.aclaim(request(new_thread()))).fence
    other = (await saver.aclaim(request(new_thread()))).fence
    for step in range(5):
        await saver.acommit(commit(fence, step=step))
        await saver.acommit(commit(other, step=step))
    await saver.aprune([fence.thread_id])
    tables = ("checkpoints", "channel_blobs", "task_writes")
    assert [await server.count(table) for table in tables] == [6, 6, 6]
    assert len([item async for item in saver.alist(config(other.thread_id))]) == 5
