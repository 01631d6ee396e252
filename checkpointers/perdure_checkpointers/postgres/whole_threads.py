"""Changing threads as a whole: deleting, pruning, copying. Who may do so, claims say, not the saver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure_checkpointers.postgres.arrays import TextArray
from perdure_checkpointers.postgres.database import Database, Session
from perdure_checkpointers.postgres.queries import Statement


class WholeThreads:
    """Each change is one transaction: it locks its threads first, in the order of their ids.

    The lock has a statement of its own, because what a writer stored while the lock was waited for
    is only seen by a statement that begins afterwards.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._queries = database.queries

    async def delete(self, thread_ids: Sequence[str]) -> None:
        await self._change(thread_ids, [self._queries.delete_threads])

    async def prune(self, thread_ids: Sequence[str]) -> None:
        await self._change(thread_ids, [self._queries.prune_threads, self._queries.delete_unused_blobs])

    async def delete_runs(self, run_ids: Sequence[str]) -> None:
        runs = {"runs": TextArray(run_ids)}
        found = await self._database.fetch(self._queries.threads_of_runs, runs)
        await self._change(
            [row.thread_id for row in found],
            [self._queries.delete_runs, self._queries.delete_unused_blobs],
            **runs,
        )

    async def copy(self, source: str, target: str) -> None:
        async def change(session: Session) -> None:
            parameters = {"source": source, "target": target}
            async with session.connection.transaction():
                if await session.fetch(self._queries.copy_target, parameters):
                    await session.fetch(self._queries.copy_thread, parameters)

        if source != target:
            await self._database.run(change)

    async def _change(
        self, thread_ids: Sequence[str], queries: Sequence[Statement[Any]], **parameters: Any
    ) -> None:
        parameters["threads"] = TextArray(thread_ids)

        async def change(session: Session) -> None:
            async with session.connection.transaction():
                for query in (self._queries.lock_threads, *queries):
                    await session.fetch(query, parameters)

        if thread_ids:
            await self._database.run(change)
