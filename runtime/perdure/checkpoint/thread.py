"""Threads as the in-process saver keeps them: shelves, and the run that may write to them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import orjson

from perdure.checkpoint.base import ClaimRequest, Commit, Fence, Orphan, RunEnd
from perdure.checkpoint.shelf import Shelf, Stored
from perdure.errors import StaleRunError, ThreadBusyError


@dataclass(slots=True, kw_only=True)
class Holder:
    """The run that holds a thread.

    Attributes:
        request: the request with which it was first claimed.
        config: the request's config, encoded.
        since: the time when it took the thread, for people.
        expires: the time when its lease runs out, by the monotonic clock.
        started: True if it has stored a checkpoint in the namespace that it was claimed for.
    """

    request: ClaimRequest
    config: bytes
    fence: Fence
    since: str
    expires: float
    attempt: int = 1
    started: bool = False

    def orphan(self) -> Orphan:
        """Return the run as an orphan."""
        request = self.request
        return Orphan(
            thread_id=request.thread_id,
            run_id=request.run_id,
            epoch=self.fence.epoch,
            graph=request.graph,
            signature=request.signature,
            input=request.input,
            config=orjson.loads(self.config),
            durability=request.durability,
            attempt=self.attempt,
            started=self.started,
        )


class Thread:
    """The shelves of a thread by namespace, and the fence before them.

    Attributes:
        epoch: of the last claim that was granted.
        last_id: the greatest checkpoint id ever drawn.
        ends: the ends of runs, each with its epoch, by run id.
    """

    __slots__ = ("ends", "epoch", "holder", "last_id", "shelves", "thread_id")

    def __init__(self, thread_id: str) -> None:
        self.thread_id = thread_id
        self.shelves: dict[str, Shelf] = defaultdict(Shelf)
        self.epoch = 0
        self.holder: Holder | None = None
        self.last_id: str | None = None
        self.ends: dict[str, tuple[int, RunEnd]] = {}

    # Claims

    def claim(self, request: ClaimRequest, config: bytes, now: float, expires: float, since: str) -> Holder:
        """Give the thread to a run. Raises ThreadBusyError; for a successor, StaleRunError too."""
        if request.successor_of is None:
            holder = self._take(request, config, now, expires, since)
        else:
            holder = self._succeed(request, request.successor_of, now, since)
        holder.expires = expires
        self.holder, self.epoch = holder, holder.fence.epoch
        return holder

    def _take(self, request: ClaimRequest, config: bytes, now: float, expires: float, since: str) -> Holder:
        """Return the holder for a new run, or the present one if the run's claim is repeated.

        Only the claim of a first attempt can be repeated. From the second attempt on, the run belongs to the
        process that recovered it, and the one that claimed it first must not be let in again.
        """
        holder = self.holder
        if holder is not None and holder.request.nonce == request.nonce and holder.attempt == 1:
            return holder
        self._refuse_if_live(now)
        fence = Fence(thread_id=self.thread_id, run_id=request.run_id, epoch=self.epoch + 1)
        return Holder(request=request, config=config, fence=fence, since=since, expires=expires)

    def _succeed(self, request: ClaimRequest, epoch: int, now: float, since: str) -> Holder:
        self._refuse_if_live(now)
        holder = self.holder
        orphan = Fence(thread_id=self.thread_id, run_id=request.run_id, epoch=epoch)
        if holder is None or holder.fence != orphan:
            raise StaleRunError(
                f"Run {request.run_id!r} of thread {self.thread_id!r} is no longer an orphan of epoch "
                f"{epoch}: it has ended, or another process has recovered it or taken its thread. Leave it "
                "alone."
            )
        holder.fence = replace(orphan, epoch=self.epoch + 1)
        holder.attempt += 1
        holder.since = since
        return holder

    def _refuse_if_live(self, now: float) -> None:
        holder = self.holder
        if holder is not None and holder.expires > now:
            raise ThreadBusyError(
                f"Thread {self.thread_id!r} is held by run {holder.fence.run_id!r} since {holder.since}. "
                "Wait for that run to end, or use another thread. If it no longer works, its lease runs out "
                "by itself, and then recover(graph) continues it."
            )

    def renew(self, fence: Fence, expires: float) -> None:
        if self.holder is None or self.holder.fence != fence:
            raise self.stale(fence)
        self.holder.expires = expires

    def end(self, fence: Fence, end: RunEnd) -> None:
        """End the run and give the thread back, if it has it."""
        if self.holder is not None and self.holder.fence == fence:
            self.ends[fence.run_id] = (fence.epoch, end)
            self.holder = None

    def stale(self, fence: Fence) -> StaleRunError:
        """Return the error for a run that has lost the thread."""
        if self.holder is not None:
            cause = f"run {self.holder.fence.run_id!r} took it at {self.holder.since}"
        elif self.epoch == 0:
            cause = "there is no such thread, or it was deleted"
        else:
            cause = "it has been given back"
        return StaleRunError(
            f"Run {fence.run_id!r} does not hold thread {self.thread_id!r} (epoch {fence.epoch}): {cause}. "
            "Nothing of this was stored. Read the thread's state, and start a new run from it."
        )

    # Commits

    def commit(self, commit: Commit, metadata: Sequence[bytes]) -> None:
        """Store a commit, unless it was stored before. Raises StaleRunError."""
        fence = commit.fence
        if fence is None:
            self._store(commit, metadata)
            return
        holder = self.holder
        if holder is None or (holder.fence is not fence and holder.fence != fence):
            if self._has_stored(commit, fence):
                return
            raise self.stale(fence)
        self._store(commit, metadata)
        if not holder.started:
            holder.started = any(row.ns == holder.request.ns for row in commit.checkpoints)
        if commit.end is not None:
            self.end(fence, commit.end)

    def _store(self, commit: Commit, metadata: Sequence[bytes]) -> None:
        fence, shelves = commit.fence, self.shelves
        writer = None if fence is None else (fence.run_id, fence.epoch)
        for row, encoded in zip(commit.checkpoints, metadata, strict=True):
            shelves[row.ns].add_checkpoint(Stored(row, encoded, writer))
            self.draw(row.checkpoint_id)
        for blob in commit.blobs:
            shelves[blob.ns].add_blob(blob)
        for write in commit.writes:
            shelves[write.ns].add_write(write)
        self.draw(commit.last_id)

    def _has_stored(self, commit: Commit, fence: Fence) -> bool:
        """Return True if all of this commit was stored before the run lost the thread.

        A checkpoint or the end must prove that this run stored it, under this epoch. The writes must be
        there, too: an earlier commit may be sent again together with later ones. (Values are stored with
        the checkpoint that took them.)
        """
        if not commit.checkpoints and commit.end is None:
            return False
        if commit.end is not None and self.ends.get(fence.run_id) != (fence.epoch, commit.end):
            return False
        shelves, writer = self.shelves, (fence.run_id, fence.epoch)
        return all(
            row.ns in shelves and shelves[row.ns].holds_checkpoint(row, writer) for row in commit.checkpoints
        ) and all(row.ns in shelves and shelves[row.ns].holds_write(row) for row in commit.writes)

    def draw(self, checkpoint_id: str | None) -> None:
        """Note that this id was drawn."""
        if checkpoint_id is not None and (self.last_id is None or checkpoint_id > self.last_id):
            self.last_id = checkpoint_id
