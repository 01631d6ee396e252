"""Taking a thread for a run: one statement that also records the run and reads its head."""

from __future__ import annotations

import os
import secrets
import socket
from datetime import datetime
from typing import Any, NamedTuple

import anyio

from perdure.checkpoint.base import ClaimRequest, Fence, Orphan
from perdure.errors import StaleRunError, ThreadBusyError
from perdure_checkpointers.postgres.claim_group import ClaimGroup, encode_config
from perdure_checkpointers.postgres.database import Database, Row
from perdure_checkpointers.postgres.queries import Statement
from perdure_checkpointers.postgres.reader import Reader, Stored

_ABANDON_SECONDS = 5.0


class Granted(NamedTuple):
    """A claim that was granted, with the head still encoded."""

    fence: Fence
    head: Stored | None
    last_id: str | None
    attempt: int


class _Answer(NamedTuple):
    epoch: int
    last_id: str | None
    attempt: int
    head_is_current: bool
    head: list[Any]


class Claims:
    """Claims and orphans, as rows."""

    def __init__(self, database: Database, reader: Reader, *, format: int) -> None:
        self._database = database
        self._queries = database.queries
        self._reader = reader
        self._format = format
        self._holder = _holder()
        self._group = ClaimGroup(database, format=format)
        self._underway = 0

    async def claim(self, request: ClaimRequest, lease_seconds: float) -> Granted:
        """Take the thread; raises ThreadBusyError."""
        self._underway += 1
        try:
            answer = await self._answer(request, lease_seconds)
        except Exception:
            raise
        except BaseException:
            await self._abandon(request)
            raise
        finally:
            self._underway -= 1
        if answer.head_is_current:
            stored = self._reader.stored(request.thread_id, request.ns, answer.head)
        else:
            # The claim waited for the last writer's commit, and its snapshot is older than that.
            stored = await self._reader.head(request.thread_id, request.ns, request.checkpoint_id)
        fence = Fence(thread_id=request.thread_id, run_id=request.run_id, epoch=answer.epoch)
        return Granted(fence, stored, answer.last_id, answer.attempt)

    async def orphans(self, graph: str | None, thread_id: str | None, limit: int) -> list[Orphan]:
        """Runs that hold their thread although their lease ran out."""
        asked = {"graph": graph, "thread": thread_id, "limit": limit}
        rows = await self._database.fetch(self._queries.orphans, asked)
        return [Orphan(**dict(zip(Orphan.__dataclass_fields__, row, strict=True))) for row in rows]

    async def _answer(self, request: ClaimRequest, lease_seconds: float) -> _Answer:
        # The statement for many costs a quarter more than that for one: it is for those who would wait.
        if self._underway > 1 and request.successor_of is None and request.checkpoint_id is None:
            found = await self._group.ask(request, self._holder_of(request), lease_seconds)
            if found is not None:
                _, epoch, last_id, head_is_current, *head = found
                return _Answer(epoch, last_id, 1, head_is_current, head)
        row = await self._granted(request, self._parameters(request, lease_seconds))
        epoch, last_id, attempt, _, _, _, _, head_is_current, *head = row
        return _Answer(epoch, last_id, attempt, head_is_current, head)

    async def _granted(self, request: ClaimRequest, parameters: dict[str, Any]) -> Row:
        queries = self._queries.claim if request.successor_of is None else self._queries.claim_orphan
        query = queries[request.checkpoint_id is not None]
        row = await self._send(query, parameters)
        if row[0] is not None:
            return row
        run_id, holder, since, live = row[3:7]
        if not live:
            # Free in the statement's snapshot, but refused: it waited for another claim.
            run_id, holder, since, live = await self._held_by(request.thread_id)
        if request.successor_of is not None:
            raise _no_orphan(request, run_id, holder, since, live)
        if (run_id, holder) == (request.run_id, parameters["holder"]):
            # For its own first attempt, whose answer got lost; that is seen now.
            row = await self._send(query, parameters)
            if row[0] is not None:
                return row
        raise ThreadBusyError(
            f"thread {request.thread_id!r} is busy: {held_text(run_id, holder, since)}; wait for that run to"
            " end, or use another thread. If its process is gone, its lease runs out by itself, and then"
            " recover(graph) continues it"
        )

    async def _send(self, query: Statement, parameters: dict[str, Any]) -> Row:
        rows = await self._database.run(lambda session: session.fetch(query, parameters), shield=True)
        await anyio.lowlevel.checkpoint_if_cancelled()
        return rows[0]

    async def _held_by(self, thread_id: str) -> Row:
        rows = await self._database.fetch(self._queries.holder, {"thread": thread_id})
        return rows[0] if rows else (None, None, None, False)

    async def _abandon(self, request: ClaimRequest) -> None:
        """Give back what nobody waits for; it would lock the thread until its lease runs out."""
        if request.successor_of is not None:
            return
        holder = self._holder_of(request)
        parameters = {"thread": request.thread_id, "run": request.run_id, "holder": holder}
        with anyio.move_on_after(_ABANDON_SECONDS, shield=True):
            await self._database.fetch(self._queries.abandon, parameters)

    def _holder_of(self, request: ClaimRequest) -> str:
        """The same for the same request, asked again; and for no other."""
        return f"{self._holder}/{request.nonce}"

    def _parameters(self, request: ClaimRequest, lease_seconds: float) -> dict[str, Any]:
        return {
            **self._reader.address(request.thread_id, request.ns, request.checkpoint_id),
            "run": request.run_id,
            # Of two recoverers with the same list of orphans, even in one process, only one may be granted.
            "holder": self._holder_of(request) if request.successor_of is None else _holder(),
            "lease": float(lease_seconds),
            "graph": request.graph,
            "signature": request.signature,
            "durability": request.durability,
            "config": encode_config(request).decode(),
            "input": request.input,
            "format": self._format,
            "successor_of": request.successor_of,
        }


def _holder() -> str:
    """Who claims; the token tells processes apart that have the same name and number, as containers do."""
    return f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"


def _no_orphan(
    request: ClaimRequest, run_id: str | None, holder: str | None, since: datetime | None, live: bool | None
) -> ThreadBusyError | StaleRunError:
    thread = f"thread {request.thread_id!r}"
    if live:
        return ThreadBusyError(f"{thread} is busy: {held_text(run_id, holder, since)}; leave it alone")
    return StaleRunError(
        f"run {request.run_id!r} is no longer an orphan on {thread}: it ended, or somebody recovered it or"
        " took the thread; leave it alone"
    )


def held_text(run_id: str | None, holder: str | None, since: datetime | None) -> str:
    """Who holds a thread, for people."""
    if run_id is None:
        return "another run held it a moment ago"
    host, _, process = (holder or "").partition("/")
    text = f"run {run_id!r} holds it, on host {host}, process {process.partition('/')[0]}"
    return text + (f", since {since.isoformat(timespec='seconds')}" if since else "")
