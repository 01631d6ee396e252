"""Threads, runs and commits for tests, and a look at what the server has."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import anyio
import orjson
import psycopg
from psycopg import sql

from perdure.checkpoint.base import (
    BlobRow,
    CheckpointRow,
    ClaimRequest,
    Commit,
    Fence,
    RunEnd,
    WriteRow,
)
from perdure.clock import IdSource
from perdure.ids import make_version

IDS = IdSource()
TABLES = ("threads", "runs", "checkpoints", "channel_blobs", "task_writes")
SUCCESS = RunEnd(status="success")


def new_thread() -> str:
    return str(uuid4())


def request(thread_id: str, run_id: str | None = None, *, successor_of: int | None = None) -> ClaimRequest:
    return ClaimRequest(
        thread_id=thread_id,
        run_id=run_id or str(uuid4()),
        graph="graph",
        signature="signature",
        input=b'{"question":1}',
        config={"recursion_limit": 7},
        successor_of=successor_of,
    )


def commit(
    fence: Fence | None,
    *,
    thread_id: str | None = None,
    value: Any = "value",
    writes: int = 1,
    step: int = 0,
    parent_id: str | None = None,
    end: RunEnd | None = None,
    metadata: dict[str, Any] | None = None,
) -> Commit:
    """Make the commit of a superstep: a checkpoint, one changed channel, and pending writes."""
    checkpoint_id = IDS.next()
    version = make_version(step, checkpoint_id)
    row = CheckpointRow(
        ns="",
        checkpoint_id=checkpoint_id,
        parent_id=parent_id,
        ts="2026-01-01T00:00:00+00:00",
        versions=orjson.dumps({"channel": version}),
        seen=b"{}",
        metadata={"source": "loop", "step": step, **(metadata or {})},
    )
    return Commit(
        thread_id=thread_id or (fence.thread_id if fence else new_thread()),
        fence=fence,
        last_id=checkpoint_id,
        checkpoints=[row],
        blobs=[BlobRow("", "channel", version, orjson.dumps(value))],
        writes=[pending(checkpoint_id, index) for index in range(writes)],
        end=end,
    )


def pending(checkpoint_id: str, idx: int, value: Any = "write", task_id: str = "task") -> WriteRow:
    return WriteRow("", checkpoint_id, task_id, "~pull", idx, "channel", orjson.dumps(value))


def config(thread_id: str, checkpoint_id: str | None = None) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread_id, "checkpoint_id": checkpoint_id}}


class Server:
    """A session of the database's owner, beside those of the saver."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self.connection = connection

    async def rows(self, query: str, *arguments: Any) -> list[tuple[Any, ...]]:
        cursor = await self.connection.execute(query.encode(), arguments)
        return await cursor.fetchall() if cursor.description else []

    async def count(self, table: str) -> int:
        query = sql.SQL("SELECT count(*) FROM perdure.{}").format(sql.Identifier(table))
        return int(await self.value(query.as_string(None)))

    async def value(self, query: str, *arguments: Any) -> Any:
        return (await self.rows(query, *arguments))[0][0]

    async def expire(self, thread_id: str) -> None:
        """Let a lease run out."""
        await self.rows(
            "UPDATE perdure.threads SET lease_expires = now() - interval '1 second' WHERE thread_id = %s",
            thread_id,
        )

    async def terminate_others(self) -> int:
        """Cut every other session of this database; how many there were."""
        rows = await self.rows(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        )
        return len(rows)

    async def until(self, query: str, value: Any) -> None:
        """Poll until the query returns this value: other sessions do not notify."""
        with anyio.fail_after(10):
            while await self.value(query) != value:  # noqa: ASYNC110  # there is no event to wait for
                await anyio.sleep(0.01)


async def until_waiting(server: Server, sessions: int = 1) -> None:
    """Wait until this many sessions of the database wait for a lock."""
    await server.until(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'",
        sessions,
    )
