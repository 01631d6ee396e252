"""Changes of whole threads: deleting, pruning, copying. The saver does not ask for a claim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure_checkpointers.postgres.connections.arrays import TextArray
from perdure_checkpointers.postgres.connections.database import Database
from perdure_checkpointers.postgres.connections.lent import LentConnection
from perdure_checkpointers.postgres.queries import Statement


class WholeThreads:
    """Changes of threads, each in one transaction that locks its threads first, in the order of their ids.

    The lock has a statement of its own: rows that a writer stored while the lock waited are seen only by a
    statement that begins afterwards.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._queries = database.queries

    async def delete(self, thread_ids: Sequence[str]) -> None:
        """Delete everything of these threads."""
        await self._change(thread_ids, [self._queries.delete_threads])

    async def prune(self, thread_ids: Sequence[str]) -> None:
        """Delete all but the newest checkpoint of every namespace of these threads."""
        await self._change(thread_ids, [self._queries.prune_threads, self._queries.delete_unused_blobs])

    async def delete_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of these runs, on all threads."""
        runs = {"runs": TextArray(run_ids)}
        found = await self._database.fetch(self._queries.threads_of_runs, runs)
        await self._change(
            [row.thread_id for row in found],
            [self._queries.delete_runs, self._queries.delete_unused_blobs],
            **runs,
        )

    async def copy(self, source: str, target: str) -> None:
        """Copy checkpoints, values and writes of a thread to another."""

        async def change(lent: LentConnection) -> None:
            parameters = {"source": source, "target": target}
            async with lent.connection.transaction():
                if await lent.fetch(self._queries.copy_target, parameters):
                    await lent.fetch(self._queries.copy_thread, parameters)

        if source != target:
            await self._database.run(change)

    async def _change(
        self, thread_ids: Sequence[str], queries: Sequence[Statement[Any]], **parameters: Any
    ) -> None:
        parameters["threads"] = TextArray(thread_ids)

        async def change(lent: LentConnection) -> None:
            async with lent.connection.transaction():
                for query in (self._queries.lock_threads, *queries):
                    await lent.fetch(query, parameters)

        if thread_ids:
            await self._database.run(change)
