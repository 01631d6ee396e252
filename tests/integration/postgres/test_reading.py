"""Reading what is stored: pages, deltas, formats; what a reader costs does not grow with the thread."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest
from psycopg import AsyncRawCursor

from perdure.checkpoint.base import BlobRow, Commit, Fence
from perdure.checkpoint.delta import Record, encode_list
from perdure.checkpoint.serde import JsonSerializer
from perdure.errors import InvalidPayloadError
from perdure.ids import make_version
from perdure_checkpointers.postgres import PostgresSaver
from perdure_checkpointers.postgres.queries import Queries, Statement
from tests.integration.postgres.threads import IDS, Server, commit, config, new_thread, request


async def long_thread(saver: PostgresSaver, length: int) -> tuple[Fence, list[Commit]]:
    fence = (await saver.aclaim(request(new_thread()))).fence
    steps = [commit(fence, value=step, step=step) for step in range(length)]
    for step in steps:
        await saver.acommit(step)
    return fence, steps


async def test_pages_follow_on_one_another_without_gap_or_repetition(saver: PostgresSaver) -> None:
    thread_id = new_thread()
    for step in range(35):
        item = commit(None, thread_id=thread_id, value=step, step=step)
        row, blob = item.checkpoints[0], item.blobs[0]
        await saver.acommit(item)
        # The same id in another namespace: pages must tell them apart.
        await saver.acommit(
            replace(item, checkpoints=[row._replace(ns="child:1")], blobs=[blob._replace(ns="child:1")])
        )
    listed = [found async for found in saver.alist({"configurable": {"thread_id": thread_id}})]
    assert len(listed) == 70
    places = [
        (
            found.checkpoint["id"],
            found.config["configurable"]["checkpoint_ns"],
            found.checkpoint["channel_values"],
        )
        for found in listed
    ]
    assert places == sorted(places, key=lambda place: (place[0], place[1] == ""), reverse=True)
    assert [place[2]["channel"] for place in places] == [step for step in range(34, -1, -1) for _ in range(2)]
    assert [found async for found in saver.alist(None)] == listed


async def test_a_page_may_be_short_of_the_limit_and_no_more_is_asked_for(
    saver: PostgresSaver, statements: list[bytes]
) -> None:
    fence, _ = await long_thread(saver, 25)
    place = {"configurable": {"thread_id": fence.thread_id, "checkpoint_ns": ""}}
    for limit, expected, asked in [(1, 1, 2), (10, 10, 2), (11, 11, 4), (25, 25, 4), (100, 25, 4)]:
        statements.clear()
        assert len([found async for found in saver.alist(place, limit=limit)]) == expected
        assert len(statements) == asked
    assert [found async for found in saver.alist(place, limit=0)] == []


async def test_the_newest_of_a_long_thread_are_found_without_reading_the_rest(
    saver: PostgresSaver, server: Server
) -> None:
    """Counted in pages of tables and indexes that the server touches; 900 checkpoints fill hundreds."""
    fence, _ = await long_thread(saver, 900)
    await server.rows("VACUUM ANALYZE")
    for query in _reads():
        assert await _pages_touched(server, query, fence) <= 50


def _reads() -> list[Statement[Any]]:
    queries = Queries("perdure")
    return [queries.get, queries.get_by_id, queries.page("of_thread", "of_namespace")]


async def _pages_touched(server: Server, query: Statement[Any], fence: Fence) -> int:
    address = {
        "thread": fence.thread_id,
        "ns": "",
        "id": "",
        "limit": 10,
        "format": 1,
        "checkpoint_format": 1,
    }
    cursor = AsyncRawCursor(server.connection)
    explained = b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + query.text
    await cursor.execute(explained, [address[name] for name in query.names])
    row: Any = await cursor.fetchone()
    report = row[0][0]
    return int(report["Plan"]["Shared Hit Blocks"] + report["Plan"]["Shared Read Blocks"])


async def test_a_list_that_grows_is_stored_as_deltas_and_read_back_whole(
    saver: PostgresSaver, server: Server
) -> None:
    fence = (await saver.aclaim(request(new_thread()))).fence
    value: list[str] = []
    record: Record | None = None
    steps = []
    for step in range(200):
        value = [*value, "x" * 1000]
        item, record = _list_commit(fence, step, value, record)
        steps.append(item)
        await saver.acommit(item)
    stored = await server.value("SELECT sum(length(payload)) FROM perdure.channel_blobs")
    assert stored < 600_000
    found = await saver.aget_tuple(config(fence.thread_id))
    assert found is not None
    assert found.checkpoint["channel_values"] == {"list": value}
    assert record is not None
    assert found.delta_bases == {"list": record.base}
    listed = [found async for found in saver.alist(config(fence.thread_id))]
    assert [len(found.checkpoint["channel_values"]["list"]) for found in listed] == list(range(200, 0, -1))

    await saver.aprune([fence.thread_id])
    assert await saver.aget_tuple(config(fence.thread_id)) == found._replace(parent_config=None)
    kept = await server.rows("SELECT version FROM perdure.channel_blobs ORDER BY version")
    assert kept[0] == (record.base.snapshot,)
    assert len(kept) < 100

    target = new_thread()
    await saver.acopy_thread(fence.thread_id, target)
    copied = await saver.aget_tuple(config(target))
    assert copied is not None
    assert copied.checkpoint == found.checkpoint


def _list_commit(fence: Fence, step: int, value: list[Any], record: Record | None) -> tuple[Commit, Record]:
    checkpoint_id = IDS.next()
    version = make_version(step, checkpoint_id)
    blob, record = encode_list(JsonSerializer(), ("", "list", version), value, record, set())
    item = commit(fence, step=step)
    row = item.checkpoints[0]._replace(checkpoint_id=checkpoint_id, versions=orjson.dumps({"list": version}))
    return replace(item, last_id=checkpoint_id, checkpoints=[row], blobs=[blob], writes=[]), record


async def test_a_delta_whose_base_is_gone_is_refused_with_all_of_its_commit(
    saver: PostgresSaver, server: Server
) -> None:
    fence = (await saver.aclaim(request(new_thread()))).fence
    first, record = _list_commit(fence, 0, ["a"], None)
    second, record = _list_commit(fence, 1, ["a", "b"], record)
    assert second.blobs[0].base is not None
    with pytest.raises(InvalidPayloadError, match="not stored"):
        await saver.acommit(second)
    assert await server.rows("TABLE perdure.checkpoints") == []
    await saver.acommit(first)
    await saver.acommit(second)
    both = replace(
        first, blobs=[*first.blobs, *second.blobs], checkpoints=[*first.checkpoints, *second.checkpoints]
    )
    target = (await saver.aclaim(request(new_thread()))).fence
    await saver.acommit(replace(both, thread_id=target.thread_id, fence=target))
    found = await saver.aget_tuple(config(target.thread_id))
    assert found is not None
    assert found.checkpoint["channel_values"] == {"list": ["a", "b"]}


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE perdure.checkpoints SET format = 77",
        "UPDATE perdure.channel_blobs SET format = 77",
        "UPDATE perdure.task_writes SET format = 77",
    ],
)
async def test_a_row_in_a_format_of_the_future_is_refused(
    saver: PostgresSaver, server: Server, change: str
) -> None:
    fence, _ = await long_thread(saver, 1)
    await server.rows(change)
    with pytest.raises(InvalidPayloadError, match="format"):
        await saver.aget_tuple(config(fence.thread_id))
    with pytest.raises(InvalidPayloadError, match="format"):
        [found async for found in saver.alist(config(fence.thread_id))]


async def test_values_can_be_read_with_sql(saver: PostgresSaver, server: Server) -> None:
    thread_id = new_thread()
    await saver.acommit(commit(None, thread_id=thread_id, value={"answer": [42]}))
    assert await server.value("SELECT convert_from(payload, 'utf8')::json FROM perdure.channel_blobs") == {
        "answer": [42]
    }


async def test_a_filter_wants_equal_values_not_contained_ones(saver: PostgresSaver) -> None:
    thread_id = new_thread()
    for step, note in enumerate([{"a": 1, "b": 2}, {"a": 1}, [1, 2], [2, 1], None, 1, True, "1"]):
        await saver.acommit(commit(None, thread_id=thread_id, step=step, metadata={"note": note}))
        found = [
            item.metadata["step"] async for item in saver.alist(config(thread_id), filter={"note": note})
        ]
        assert found == [step]
    assert [item async for item in saver.alist(config(thread_id), filter={"absent": None})] == []


async def test_a_value_is_stored_once_whoever_refers_to_it(saver: PostgresSaver, server: Server) -> None:
    thread_id = new_thread()
    first = commit(None, thread_id=thread_id)
    blob: BlobRow = first.blobs[0]
    second = commit(None, thread_id=thread_id)
    row = second.checkpoints[0]._replace(versions=first.checkpoints[0].versions)
    await saver.acommit(first)
    await saver.acommit(replace(second, checkpoints=[row], blobs=[blob]))
    assert await server.value("SELECT count(*) FROM perdure.channel_blobs") == 1
