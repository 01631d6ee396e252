"""Group commit: the commits that gather while one is in flight are sent together.

No task sends in the background, and there is no timer. Of the callers that wait, one *leads*: it borrows
a connection, takes everything that has gathered, sends it as one statement, answers each commit, and hands
the lead to the first that came meanwhile. So a batch is what gathered while the last one was in flight.

A thread always uses the same lane, and a lane sends one batch at a time, so the commits of a thread are
stored in the order in which they were handed over. A thread whose row is locked by another session moves
to a lane of its own, where it waits without keeping other threads waiting.

A lane is no `perdure.aio.combiner.Combiner`: commits move between lanes while their callers wait, and an
answer wakes all callers of a batch at once, where a combiner would wake one after the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import psycopg

from perdure.checkpoint.base import Commit
from perdure.errors import InvalidPayloadError, StaleRunError
from perdure_checkpointers.postgres.commits.batch import Batch, Encoded
from perdure_checkpointers.postgres.commits.lane import Lane, Slot
from perdure_checkpointers.postgres.connections.database import Database
from perdure_checkpointers.postgres.connections.lent import LentConnection
from perdure_checkpointers.postgres.connections.translate import is_about_values


class GroupCommit:
    """The storing of commits through a few lanes."""

    def __init__(self, database: Database, *, lanes: int, format: int) -> None:
        self._database = database
        self._queries = database.queries
        self._format = format
        self._lanes = [Lane(self._queries.commit_one) for _ in range(lanes)]
        self._detours: dict[str, Lane] = {}
        self._unfenced: dict[str, Lane] = {}

    async def commit(self, commit: Commit) -> None:
        """Return when a commit is stored.

        If this is cancelled, the commit may be stored or not, but never out of order.
        """
        encoded = Encoded.of(commit)
        lane = self._lane(commit)
        slot = Slot(encoded, lane)
        lane.enter([slot])
        try:
            while not slot.answered:
                if slot.lane.leader is slot:
                    await self._lead(slot.lane)
                else:
                    await slot.wait()
        finally:
            # Cancelled. The slot stays in its lane as long as a later commit of its run builds on it.
            if not slot.answered:
                self._leave(slot)
        if slot.failure is not None:
            # One failure can be the answer to many; each traceback begins anew.
            raise slot.failure.with_traceback(None)

    def _lane(self, commit: Commit) -> Lane:
        thread_id = commit.thread_id
        if commit.fence is None:
            lane = self._unfenced.get(thread_id)
            return lane or self._unfenced.setdefault(
                thread_id, Lane(self._queries.commit_unfenced, thread_id)
            )
        return self._detours.get(thread_id) or self._lanes[hash(thread_id) % len(self._lanes)]

    def _leave(self, slot: Slot) -> None:
        slot.abandoned = True
        if slot.lane.leader is slot:
            slot.lane.pass_on()
            self._forget_idle(slot.lane)

    async def _lead(self, lane: Lane) -> None:
        try:
            await self._database.run(lambda lent: self._send(lane, lent), shield=True)
        except Exception as error:
            # The commits that came meanwhile would only wait as long for the same answer.
            for slot in lane.waiting():
                slot.answer(error)
            lane.queue.clear()
        finally:
            # A batch without an answer, because its leader was cancelled before the statement began, is
            # first in the queue again, and another caller leads.
            lane.land()
            self._forget_idle(lane)

    def _forget_idle(self, lane: Lane) -> None:
        if lane.thread_id is not None and lane.leader is None:
            for lanes in (self._detours, self._unfenced):
                if lanes.get(lane.thread_id) is lane:
                    del lanes[lane.thread_id]

    async def _send(self, lane: Lane, lent: LentConnection) -> None:
        # A batch that is sent again after a lost connection stays as it is.
        if not lane.flight:
            lane.take()
        await self._store(lane, lent, lane.open())

    async def _store(self, lane: Lane, lent: LentConnection, slots: Sequence[Slot]) -> None:
        if not slots:
            return
        try:
            batch = self._batch(slots)
            accepted = await self._accepted(lane, lent, batch)
        except (psycopg.Error, UnicodeEncodeError) as error:
            if not is_about_values(error):
                raise
            await self._bisect(lane, lent, slots, error)
        else:
            await self._tell(lane, lent, slots, batch, accepted)

    def _batch(self, slots: Sequence[Slot]) -> Batch:
        return Batch([slot.encoded for slot in slots], format=self._format)

    async def _accepted(self, lane: Lane, lent: LentConnection, batch: Batch) -> set[str]:
        """Send a batch; return the threads whose commits were stored."""
        query = lane.query if len(batch.threads) == 1 else self._queries.commit
        parameters = batch.of_one() if len(batch.threads) == 1 else batch.of_many()
        return {batch.threads[row.n - 1] for row in await lent.fetch(query, parameters)}

    async def _bisect(
        self, lane: Lane, lent: LentConnection, slots: Sequence[Slot], error: Exception
    ) -> None:
        """Find the commit that holds the value which was refused, and fail no other."""
        if len(slots) > 1:
            middle = len(slots) // 2
            await self._store(lane, lent, slots[:middle])
            await self._store(lane, lent, [slot for slot in slots[middle:] if not slot.answered])
        else:
            self._fail(lane, slots[0], error)

    def _fail(self, lane: Lane, guilty: Slot, error: Exception) -> None:
        """Fail a commit, and those of the same run that wait behind it: they build on it."""
        guilty.answer(error)
        for slot in lane.waiting():
            if slot.fence is not None and slot.fence == guilty.fence:
                slot.answer(error)
        lane.queue = deque(slot for slot in lane.queue if not slot.answered)

    async def _tell(
        self, lane: Lane, lent: LentConnection, slots: Sequence[Slot], batch: Batch, accepted: set[str]
    ) -> None:
        for slot in slots:
            if slot.thread_id in accepted:
                slot.answer()
        if len(accepted) < len(batch.threads):
            rows = await lent.fetch(self._queries.verdict, batch.of_many())
            verdicts = {batch.threads[row.n - 1]: row.verdict for row in rows}
            await self._explain(lane, lent, slots, verdicts)

    async def _explain(
        self, lane: Lane, lent: LentConnection, slots: Sequence[Slot], verdicts: dict[str, str]
    ) -> None:
        """Answer the commits that were not accepted, or let them wait in lanes of their own."""
        for slot in slots:
            if slot.answered or slot.lane is not lane:
                continue
            match verdicts[slot.thread_id]:
                case "stale":
                    await self._refuse(lent, slot)
                case "broken":
                    self._fail(lane, slot, _broken(slot.encoded.commit))
                case _:
                    self._take_detour(lane, slot.thread_id)

    def _take_detour(self, lane: Lane, thread_id: str) -> None:
        """Move all commits of a thread, in order, to a lane of its own, which waits for the row."""
        moving = [slot for slot in lane.waiting() if slot.thread_id == thread_id]
        if moving:
            lane.queue = deque(slot for slot in lane.queue if slot.thread_id != thread_id)
            detour = self._detours.setdefault(thread_id, Lane(self._queries.commit_waiting, thread_id))
            detour.enter(moving)

    async def _refuse(self, lent: LentConnection, slot: Slot) -> None:
        """Answer a commit whose fence does not hold: stale, unless it was stored and the answer got lost."""
        commit = self._batch([slot]).of_many()
        [repetition] = await lent.fetch(self._queries.already_committed, commit)
        slot.answer(None if repetition.stored else _stale(slot.encoded.commit))


def _stale(commit: Commit) -> StaleRunError:
    run = commit.fence.run_id if commit.fence else None
    return StaleRunError(
        f"Run {run!r} lost thread {commit.thread_id!r}: it ended, or its lease ran out and another run took "
        "the thread, or the thread was deleted. Nothing of this commit was stored. Read the thread's state, "
        "and start a new run from it."
    )


def _broken(commit: Commit) -> InvalidPayloadError:
    return InvalidPayloadError(
        f"A value of thread {commit.thread_id!r} stands on a version of it that is not stored. Nothing of "
        "this commit was stored. Rows of this thread were deleted by something other than the saver: restore "
        "them, or use another thread."
    )
