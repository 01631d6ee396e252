"""Commits that arrive while one is in flight leave together.

There is no task behind it and no timer: of those who wait, one *leads*. It borrows a connection,
takes everything that has gathered, sends it as one statement, answers each, and hands the lead to
the first who came meanwhile. So a batch is what gathered while the last one was in flight.

A thread always uses the same lane, and a lane sends one batch at a time: the commits of a thread
are stored in the order in which they were handed over. A thread whose row somebody else has locked
leaves its lane for one of its own, where it waits without keeping anyone waiting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import anyio
import psycopg

from perdure.checkpoint.base import Commit, Fence
from perdure.errors import InvalidPayloadError, StaleRunError
from perdure_checkpointers.postgres.batch import Batch, Encoded
from perdure_checkpointers.postgres.database import Database, Session
from perdure_checkpointers.postgres.queries import Statement
from perdure_checkpointers.postgres.queries.rows import AcceptedRow
from perdure_checkpointers.postgres.translate import is_about_values

_MAX_COMMITS = 512
_MAX_BYTES = 8 * 1024 * 1024


class Slot:
    """A commit, and its answer once there is one."""

    __slots__ = ("_turn", "abandoned", "answered", "encoded", "failure", "lane")

    def __init__(self, encoded: Encoded, lane: Lane) -> None:
        self.encoded = encoded
        self.lane = lane
        self.answered = False
        self.abandoned = False
        self.failure: Exception | None = None
        self._turn: anyio.Event | None = None

    @property
    def fence(self) -> Fence | None:
        return self.encoded.commit.fence

    @property
    def thread_id(self) -> str:
        return self.encoded.commit.thread_id

    def answer(self, failure: Exception | None = None) -> None:
        self.answered, self.failure = True, failure
        self.wake()

    async def wait(self) -> None:
        """Until it is answered or has to lead."""
        self._turn = anyio.Event()
        await self._turn.wait()

    def wake(self) -> None:
        if self._turn is not None:
            self._turn.set()


class Lane:
    """Commits that leave in order, batch by batch.

    Attributes:
        query: the statement for a batch of one thread.
        thread_id: the only thread it serves, whose row its statement waits for; None if it serves many
            and passes by those that are locked.
        leader: who sends; there is one whenever the queue is not empty.
        flight: the batch that is being sent.
    """

    __slots__ = ("flight", "leader", "query", "queue", "thread_id")

    def __init__(self, query: Statement[AcceptedRow], thread_id: str | None = None) -> None:
        self.query = query
        self.thread_id = thread_id
        self.queue: deque[Slot] = deque()
        self.flight: list[Slot] = []
        self.leader: Slot | None = None

    def enter(self, slots: Iterable[Slot]) -> None:
        for slot in slots:
            slot.lane = self
            self.queue.append(slot)
        if self.leader is None:
            self.pass_on()

    def take(self) -> None:
        """Move what can leave together into `flight`: of one thread only commits with one fence."""
        left: deque[Slot] = deque()
        fences: dict[str, Fence | None] = {}
        size, full = 0, False
        for slot in self.queue:
            size += slot.encoded.size
            full = full or len(self.flight) == _MAX_COMMITS or (size > _MAX_BYTES and len(self.flight) > 0)
            if full or fences.setdefault(slot.thread_id, slot.fence) != slot.fence:
                left.append(slot)
            else:
                self.flight.append(slot)
        self.queue = left

    def open(self) -> list[Slot]:
        """Those of the flight that have no answer and have not gone elsewhere."""
        return [slot for slot in self.flight if slot.lane is self and not slot.answered]

    def waiting(self) -> list[Slot]:
        """All that have no answer, in their order."""
        return [*self.open(), *self.queue]

    def land(self) -> None:
        """After a batch: what was not answered is first in the queue again, and somebody leads."""
        self.queue.extendleft(reversed(self.open()))
        self.flight = []
        self.pass_on()

    def pass_on(self) -> None:
        self.queue = deque(_wanted(self.queue))
        self.leader = next((slot for slot in self.queue if not slot.abandoned), None)
        if self.leader is not None:
            self.leader.wake()


def _wanted(queue: Iterable[Slot]) -> list[Slot]:
    """Without commits that nobody waits for any more, unless a later one of the same run stands on them."""
    stood_on: set[Fence] = set()
    kept = []
    for slot in reversed(list(queue)):
        if not slot.abandoned or slot.fence in stood_on:
            kept.append(slot)
            if slot.fence is not None:
                stood_on.add(slot.fence)
    return kept[::-1]


class GroupCommit:
    """Stores commits through a few lanes."""

    def __init__(self, database: Database, *, lanes: int, format: int) -> None:
        self._database = database
        self._queries = database.queries
        self._format = format
        self._lanes = [Lane(self._queries.commit_one) for _ in range(lanes)]
        self._detours: dict[str, Lane] = {}
        self._unfenced: dict[str, Lane] = {}

    async def commit(self, commit: Commit) -> None:
        """Returns when it is stored. Cancelled, it may be stored or not, but never out of order."""
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
            await self._database.run(lambda session: self._send(lane, session), shield=True)
        except Exception as error:
            # Those who came meanwhile would only wait as long for the same answer.
            for slot in lane.waiting():
                slot.answer(error)
            lane.queue.clear()
        finally:
            lane.land()
            self._forget_idle(lane)

    def _forget_idle(self, lane: Lane) -> None:
        if lane.thread_id is not None and lane.leader is None:
            for lanes in (self._detours, self._unfenced):
                if lanes.get(lane.thread_id) is lane:
                    del lanes[lane.thread_id]

    async def _send(self, lane: Lane, session: Session) -> None:
        if not lane.flight:
            lane.take()
        await self._store(lane, session, lane.open())

    async def _store(self, lane: Lane, session: Session, slots: Sequence[Slot]) -> None:
        if not slots:
            return
        try:
            batch = self._batch(slots)
            accepted = await self._accepted(lane, session, batch)
        except (psycopg.Error, UnicodeEncodeError) as error:
            if not is_about_values(error):
                raise
            await self._bisect(lane, session, slots, error)
        else:
            await self._tell(lane, session, slots, batch, accepted)

    def _batch(self, slots: Sequence[Slot]) -> Batch:
        return Batch([slot.encoded for slot in slots], format=self._format)

    async def _accepted(self, lane: Lane, session: Session, batch: Batch) -> set[str]:
        """Send a batch; the threads whose commits were stored."""
        query = lane.query if len(batch.threads) == 1 else self._queries.commit
        parameters = batch.of_one() if len(batch.threads) == 1 else batch.of_many()
        return {batch.threads[row.n - 1] for row in await session.fetch(query, parameters)}

    async def _bisect(self, lane: Lane, session: Session, slots: Sequence[Slot], error: Exception) -> None:
        """Find who is to blame, and fail nobody else."""
        if len(slots) > 1:
            middle = len(slots) // 2
            await self._store(lane, session, slots[:middle])
            await self._store(lane, session, [slot for slot in slots[middle:] if not slot.answered])
        else:
            self._fail(lane, slots[0], error)

    def _fail(self, lane: Lane, guilty: Slot, error: Exception) -> None:
        """Fail a commit, and those of the same run that wait behind it: they stand on what it holds."""
        guilty.answer(error)
        for slot in lane.waiting():
            if slot.fence is not None and slot.fence == guilty.fence:
                slot.answer(error)
        lane.queue = deque(slot for slot in lane.queue if not slot.answered)

    async def _tell(
        self, lane: Lane, session: Session, slots: Sequence[Slot], batch: Batch, accepted: set[str]
    ) -> None:
        for slot in slots:
            if slot.thread_id in accepted:
                slot.answer()
        if len(accepted) < len(batch.threads):
            rows = await session.fetch(self._queries.verdict, batch.of_many())
            verdicts = {batch.threads[row.n - 1]: row.verdict for row in rows}
            await self._explain(lane, session, slots, verdicts)

    async def _explain(
        self, lane: Lane, session: Session, slots: Sequence[Slot], verdicts: dict[str, str]
    ) -> None:
        """Tell those who were not accepted why, or let them wait elsewhere."""
        for slot in slots:
            if slot.answered or slot.lane is not lane:
                continue
            match verdicts[slot.thread_id]:
                case "stale":
                    await self._refuse(session, slot)
                case "broken":
                    self._fail(lane, slot, _broken(slot.encoded.commit))
                case _:
                    self._take_detour(lane, slot.thread_id)

    def _take_detour(self, lane: Lane, thread_id: str) -> None:
        """Let this thread wait for its row alone, with all that it has handed over, in order."""
        moving = [slot for slot in lane.waiting() if slot.thread_id == thread_id]
        if moving:
            lane.queue = deque(slot for slot in lane.queue if slot.thread_id != thread_id)
            detour = self._detours.setdefault(thread_id, Lane(self._queries.commit_waiting, thread_id))
            detour.enter(moving)

    async def _refuse(self, session: Session, slot: Slot) -> None:
        """The fence does not hold. But what was stored before an answer got lost is stored."""
        commit = self._batch([slot]).of_many()
        [repetition] = await session.fetch(self._queries.already_committed, commit)
        slot.answer(None if repetition.stored else _stale(slot.encoded.commit))


def _stale(commit: Commit) -> StaleRunError:
    run = commit.fence.run_id if commit.fence else None
    return StaleRunError(
        f"run {run!r} lost thread {commit.thread_id!r}: it ended, or its lease ran out and another run took"
        " the thread, or the thread was deleted; nothing of this commit was stored"
    )


def _broken(commit: Commit) -> InvalidPayloadError:
    return InvalidPayloadError(
        f"a value of thread {commit.thread_id!r} stands on a version of it that is not stored: rows of this"
        " thread were deleted by something other than the saver. Nothing of this commit was stored"
    )
