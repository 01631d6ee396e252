"""Claims: one statement takes a thread for a run, records the run and reads its head."""

from __future__ import annotations

import os
import secrets
import socket
from typing import Any, NamedTuple

import anyio

from perdure.checkpoint.base import ClaimRequest, Fence, Orphan
from perdure.errors import StaleRunError, ThreadBusyError
from perdure_checkpointers.postgres.claims.claim_group import ClaimGroup, encode_config
from perdure_checkpointers.postgres.connections.database import Database
from perdure_checkpointers.postgres.queries import Statement
from perdure_checkpointers.postgres.queries.rows import AnswerRow, GrantRow, HolderRow
from perdure_checkpointers.postgres.reader import CheckpointReader, StoredCheckpoint

_ABANDON_SECONDS = 5.0


class Granted(NamedTuple):
    """A claim that was granted, with the head still encoded."""

    fence: Fence
    head: StoredCheckpoint | None
    last_id: str | None
    attempt: int


class Claims:
    """The claiming of threads, and the search for orphans."""

    def __init__(self, database: Database, reader: CheckpointReader, *, format: int) -> None:
        self._database = database
        self._queries = database.queries
        self._reader = reader
        self._format = format
        self._holder = _holder()
        self._group = ClaimGroup(database, format=format)
        self._underway = 0

    async def claim(self, request: ClaimRequest, lease_seconds: float) -> Granted:
        """Take the thread. Raises ThreadBusyError; for a recovery, StaleRunError too."""
        self._underway += 1
        try:
            epoch, row = await self._granted(request, lease_seconds)
        except Exception:
            raise
        except BaseException:
            # Cancelled: the claim may have been granted, and nobody would use it.
            await self._abandon(request)
            raise
        finally:
            self._underway -= 1
        if row.head_is_current:
            stored = self._reader.stored(request.thread_id, request.ns, row)
        else:
            # The claim waited for the last writer's commit, and the statement's snapshot is older than that.
            stored = await self._reader.head(request.thread_id, request.ns, request.checkpoint_id)
        fence = Fence(thread_id=request.thread_id, run_id=request.run_id, epoch=epoch)
        return Granted(fence, stored, row.last_id, row.attempt)

    async def orphans(self, graph: str | None, thread_id: str | None, limit: int) -> list[Orphan]:
        """List the runs that hold their thread although their lease ran out."""
        asked = {"graph": graph, "thread": thread_id, "limit": limit}
        rows = await self._database.fetch(self._queries.orphans, asked)
        return [Orphan(**row._asdict()) for row in rows]

    async def _granted(self, request: ClaimRequest, lease_seconds: float) -> tuple[int, GrantRow]:
        """Return the epoch and the row of a claim that was granted; raise ThreadBusyError if it was not."""
        # The statement for many costs a quarter more than that for one, so a claim alone does not use it.
        if self._underway > 1 and request.successor_of is None and request.checkpoint_id is None:
            free = await self._group.ask(request, self._holder_of(request), lease_seconds)
            if free is not None and free.epoch is not None:
                return free.epoch, free
        query, parameters = self._query(request), self._parameters(request, lease_seconds)
        answer = await self._send(query, parameters)
        if answer.epoch is None:
            holder = await self._held_by(request.thread_id, answer)
            if request.successor_of is not None:
                raise _no_orphan(request, holder)
            if (holder.run_id, holder.holder) != (request.run_id, parameters["holder"]):
                raise _busy(request, holder)
            # The thread is held by this request's own first attempt, whose answer got lost. The statement
            # did not see it yet, and sees it now.
            answer = await self._send(query, parameters)
            if answer.epoch is None:
                raise _busy(request, holder)
        return answer.epoch, answer

    def _query(self, request: ClaimRequest) -> Statement[AnswerRow]:
        queries, by_id = self._queries, request.checkpoint_id is not None
        if request.successor_of is None:
            return queries.claim_by_id if by_id else queries.claim
        return queries.claim_orphan_by_id if by_id else queries.claim_orphan

    async def _send(self, query: Statement[AnswerRow], parameters: dict[str, Any]) -> AnswerRow:
        [answer] = await self._database.run(lambda lent: lent.fetch(query, parameters), shield=True)
        # The statement was shielded. A caller that was cancelled meanwhile does not take the thread.
        await anyio.lowlevel.checkpoint_if_cancelled()
        return answer

    async def _held_by(self, thread_id: str, answer: AnswerRow) -> HolderRow:
        """Return the run that holds a thread, which was refused."""
        if answer.live:
            return HolderRow(answer.run_id, answer.holder, answer.claimed_at, answer.live)
        # Free when the statement began, but refused: it waited for the lock of another claim.
        rows = await self._database.fetch(self._queries.holder, {"thread": thread_id})
        return rows[0] if rows else HolderRow(None, None, None, live=False)

    async def _abandon(self, request: ClaimRequest) -> None:
        """Give back a claim that nobody waits for: it would keep the thread busy until its lease runs out."""
        if request.successor_of is not None:
            return
        holder = self._holder_of(request)
        parameters = {"thread": request.thread_id, "run": request.run_id, "holder": holder}
        with anyio.move_on_after(_ABANDON_SECONDS, shield=True):
            await self._database.fetch(self._queries.abandon, parameters)

    def _holder_of(self, request: ClaimRequest) -> str:
        """Return a name for the holder that is equal for one request, sent again, and for no other."""
        return f"{self._holder}/{request.nonce}"

    def _parameters(self, request: ClaimRequest, lease_seconds: float) -> dict[str, Any]:
        return {
            **self._reader.address(request.thread_id, request.ns, request.checkpoint_id),
            "run": request.run_id,
            # A name of its own: of two recoveries of one orphan, even in one process, one may be granted.
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
    """Return a name for this process; its token tells containers of equal host name and pid apart."""
    return f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"


def _busy(request: ClaimRequest, holder: HolderRow) -> ThreadBusyError:
    return ThreadBusyError(
        f"Thread {request.thread_id!r} is busy: {_held_text(holder)}. Wait for that run to end, or use "
        "another thread. If its process is gone, its lease runs out by itself, and then recover(graph) "
        "continues it."
    )


def _no_orphan(request: ClaimRequest, holder: HolderRow) -> ThreadBusyError | StaleRunError:
    if holder.live:
        return ThreadBusyError(f"Thread {request.thread_id!r} is busy: {_held_text(holder)}. Leave it alone.")
    return StaleRunError(
        f"Run {request.run_id!r} is no longer an orphan on thread {request.thread_id!r}: it ended, or "
        "another process recovered it or took the thread. Leave it alone."
    )


def _held_text(holder: HolderRow) -> str:
    """Describe who holds a thread, for people."""
    if holder.run_id is None:
        return "another run held it a moment ago"
    host, _, process = (holder.holder or "").partition("/")
    text = f"run {holder.run_id!r} holds it, on host {host}, process {process.partition('/')[0]}"
    since = holder.claimed_at
    return text + (f", since {since.isoformat(timespec='seconds')}" if since else "")
