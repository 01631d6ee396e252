"""The saver contract on Postgres."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

from psycopg_pool import AsyncConnectionPool

from perdure.checkpoint.addresses import address_of, checkpoint_id_of, config_of, require_ids
from perdure.checkpoint.base import (
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    Claim,
    ClaimRequest,
    Commit,
    Fence,
    LeasedSaver,
    Orphan,
    RunEnd,
    SerializerProtocol,
)
from perdure.checkpoint.rows import build_tuple, commit_of_checkpoint, commit_of_writes
from perdure.checkpoint.serde import JsonSerializer
from perdure.errors import StaleRunError
from perdure_checkpointers.postgres.claims.claims import Claims
from perdure_checkpointers.postgres.claims.leases import Leases
from perdure_checkpointers.postgres.commits.group_commit import GroupCommit
from perdure_checkpointers.postgres.connections.database import Database
from perdure_checkpointers.postgres.connections.lender import Pool, pool_of
from perdure_checkpointers.postgres.connections.lent import Connection, LentConnection
from perdure_checkpointers.postgres.queries import Queries
from perdure_checkpointers.postgres.reader import CheckpointReader, Selection, StoredCheckpoint
from perdure_checkpointers.postgres.whole_threads import WholeThreads


class PostgresSaver(LeasedSaver):
    """A saver that keeps threads in a Postgres database.

        async with PostgresSaver.from_conn_string("postgresql://…") as saver:
            await saver.setup()

    Commits of different threads that gather are sent together (see `commits.group_commit`). Nothing runs in
    the background.
    """

    stores_deltas = True

    def __init__(
        self,
        pool: Pool,
        *,
        schema: str = "perdure",
        serde: SerializerProtocol | None = None,
        lanes: int = 2,
        connect_seconds: float = 10.0,
        statement_seconds: float = 30.0,
        lease_seconds: float = 30.0,
    ) -> None:
        """Use the application's own pool, which the application opens and closes.

        Args:
            pool: its connections need no settings of their own.
            lanes: how many group commits may be in flight at once.
            connect_seconds: how long to wait for a connection.
            statement_seconds: how long to wait for an answer.
            lease_seconds: how long the threads of a process that is gone stay claimed. A claim is renewed
                after a third of it; a run that could not be renewed for two thirds stops by itself.
        """
        if not isinstance(pool, AsyncConnectionPool):
            raise TypeError(
                f"PostgresSaver takes a psycopg_pool.AsyncConnectionPool, not {type(pool).__name__}. For a "
                "URL, write `async with PostgresSaver.from_conn_string(url) as saver:`."
            )
        self.lease_seconds = lease_seconds
        self.renew_seconds = lease_seconds / 3
        self.stop_seconds = lease_seconds * 2 / 3
        self.serde = serde if serde is not None else JsonSerializer()
        self._database = Database(
            pool,
            Queries(schema),
            schema=schema,
            connect_seconds=connect_seconds,
            statement_seconds=statement_seconds,
        )
        self._place = self._database.place
        self._commits = GroupCommit(self._database, lanes=lanes, format=self.serde.format)
        self._reader = CheckpointReader(self._database, format=self.serde.format)
        self._claims = Claims(self._database, self._reader, format=self.serde.format)
        self._whole_threads = WholeThreads(self._database)
        self._leases = Leases(self._database)

    @classmethod
    @asynccontextmanager
    async def from_conn_string(
        cls,
        url: str,
        *,
        schema: str = "perdure",
        serde: SerializerProtocol | None = None,
        min_size: int = 1,
        max_size: int = 10,
        lanes: int = 2,
        connect_seconds: float = 10.0,
        statement_seconds: float = 30.0,
        lease_seconds: float = 30.0,
    ) -> AsyncIterator[PostgresSaver]:
        """Open a saver with a pool of its own, and close it at the end.

        Raises SaverUnavailableError, saying which host and why, if the database does not answer
        within `connect_seconds`; ValueError if `url` is no address of a Postgres.
        """

        async def prove(connection: Connection) -> None:
            await saver._database.lender.prove(LentConnection(connection))

        pool = pool_of(url, min_size=min_size, max_size=max_size, prove=prove)
        saver = cls(
            pool,
            schema=schema,
            serde=serde,
            lanes=lanes,
            connect_seconds=connect_seconds,
            statement_seconds=statement_seconds,
            lease_seconds=lease_seconds,
        )
        # A connection for each lane, and one for a claim or a reader beside them.
        saver._database.lender.own(at_hand=lanes + 1)
        await saver._database.lender.open()
        try:
            yield saver
        finally:
            saver._leases.close()
            await saver._database.lender.close()

    @property
    def home(self) -> Any:
        """The event loop on which the connections live."""
        return self._database.home

    @property
    def database(self) -> Database:
        """The database that the saver uses, for objects that work beside it."""
        return self._database

    async def setup(self) -> None:
        """Create the schema, or bring it up to date. Any number of processes may do so at once.

        Inside a transaction of your own, use `perdure_migrations.migrate(connection)`.
        """
        with self._place.translated():
            await self._database.setup()

    # Runs

    async def aclaim(self, request: ClaimRequest) -> Claim:
        with self._place.translated():
            fence, head, last_id, attempt = await self._claims.claim(request, self.lease_seconds)
        self._leases.hold(fence)
        return Claim(fence=fence, head=self._view(head) if head else None, last_id=last_id, attempt=attempt)

    async def acommit(self, commit: Commit) -> None:
        with self._place.translated():
            try:
                await self._commits.commit(commit)
            except StaleRunError:
                self._forget(commit.fence)
                raise
        if commit.end is not None:
            self._forget(commit.fence)

    async def arenew(self, fence: Fence) -> None:
        with self._place.translated():
            await self._leases.renew(
                fence, lease_seconds=self.lease_seconds, fresh_seconds=self.renew_seconds / 2
            )

    async def arelease(self, fence: Fence, end: RunEnd) -> None:
        with self._place.translated():
            try:
                await self._commits.commit(Commit(thread_id=fence.thread_id, fence=fence, end=end))
            except StaleRunError:
                pass
            finally:
                self.forget(fence)

    def forget(self, fence: Fence) -> None:
        self._leases.forget(fence)

    async def aorphans(
        self, *, graph: str | None = None, thread_id: str | None = None, limit: int = 100
    ) -> list[Orphan]:
        with self._place.translated():
            return await self._claims.orphans(graph, thread_id, limit)

    def _forget(self, fence: Fence | None) -> None:
        if fence is not None:
            self.forget(fence)

    # Reading

    async def aget_tuple(self, config: Mapping[str, Any]) -> CheckpointTuple | None:
        address = address_of(config)
        with self._place.translated():
            stored = await self._reader.head(address.thread_id, address.ns or "", address.checkpoint_id)
        return self._view(stored) if stored else None

    async def alist(
        self,
        config: Mapping[str, Any] | None,
        *,
        filter: Mapping[str, Any] | None = None,
        before: Mapping[str, Any] | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        address = address_of(config) if config is not None else None
        selection = Selection(
            thread_id=address and address.thread_id,
            ns=address and address.ns,
            checkpoint_id=address and address.checkpoint_id,
            before=checkpoint_id_of(before) if before is not None else None,
            filter=filter,
        )
        pages = self._reader.pages(selection, limit)
        while page := await self._next(pages):
            for stored in page:
                yield self._view(stored)

    async def _next(self, pages: AsyncIterator[list[StoredCheckpoint]]) -> list[StoredCheckpoint] | None:
        with self._place.translated():
            return await anext(pages, None)

    def _view(self, stored: StoredCheckpoint) -> CheckpointTuple:
        return build_tuple(self.serde, *stored)

    # Writing without a run

    async def aput(
        self,
        config: Mapping[str, Any],
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: Mapping[str, str],
    ) -> dict[str, Any]:
        commit = commit_of_checkpoint(self.serde, config, checkpoint, metadata, new_versions)
        await self.acommit(commit)
        return config_of(commit.thread_id, commit.checkpoints[0].ns, checkpoint["id"])

    async def aput_writes(
        self,
        config: Mapping[str, Any],
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        await self.acommit(commit_of_writes(self.serde, config, writes, task_id, task_path))

    # Whole threads

    async def adelete_thread(self, thread_id: str) -> None:
        with self._place.translated():
            await self._whole_threads.delete([thread_id])

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        ids = require_ids(run_ids, "run_ids")
        with self._place.translated():
            await self._whole_threads.delete_runs(sorted(ids))

    async def acopy_thread(self, source: str, target: str) -> None:
        with self._place.translated():
            await self._whole_threads.copy(source, target)

    async def aprune(
        self, thread_ids: Sequence[str], *, strategy: Literal["keep_latest", "delete"] = "keep_latest"
    ) -> None:
        ids = require_ids(thread_ids, "thread_ids")
        changes = {"keep_latest": self._whole_threads.prune, "delete": self._whole_threads.delete}
        if strategy not in changes:
            raise ValueError(f"strategy is {' or '.join(map(repr, changes))}, not {strategy!r}.")
        with self._place.translated():
            await changes[strategy](sorted(ids))
