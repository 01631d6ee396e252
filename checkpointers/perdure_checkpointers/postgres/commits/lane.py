"""Lanes: queues of commits, of which one batch is in flight at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

import anyio

from perdure.checkpoint.base import Fence
from perdure_checkpointers.postgres.commits.batch import Encoded
from perdure_checkpointers.postgres.queries import Statement
from perdure_checkpointers.postgres.queries.rows import AcceptedRow

_MAX_COMMITS: Final = 512
_MAX_BYTES: Final = 8 * 1024 * 1024


class Slot:
    """A commit in a lane, and its answer once there is one.

    Attributes:
        abandoned: True once nobody waits for the answer any more.
        failure: the error that the commit is answered with; None if it was stored.
    """

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
        """The fence of the commit."""
        return self.encoded.commit.fence

    @property
    def thread_id(self) -> str:
        """The thread of the commit."""
        return self.encoded.commit.thread_id

    def answer(self, failure: Exception | None = None) -> None:
        """Answer the commit, and wake the caller that waits for it."""
        self.answered, self.failure = True, failure
        self.wake()

    async def wait(self) -> None:
        """Wait until the commit is answered, or its caller has to lead."""
        self._turn = anyio.Event()
        await self._turn.wait()

    def wake(self) -> None:
        """Wake the caller that waits, if it does."""
        if self._turn is not None:
            self._turn.set()


class Lane:
    """Commits that leave in order, batch by batch.

    Attributes:
        query: the statement for a batch of one thread.
        thread_id: the only thread that it serves, whose row its statement waits for; None if it serves
            many, and skips rows that are locked.
        leader: the slot whose caller sends; there is one whenever the queue is not empty.
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
        """Append slots; the first of them leads if nobody does."""
        for slot in slots:
            slot.lane = self
            self.queue.append(slot)
        if self.leader is None:
            self.pass_on()

    def take(self) -> None:
        """Move the slots that can leave together into `flight`: of one thread only those with one fence."""
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
        """Return the slots of the flight that have no answer and have not moved to another lane."""
        return [slot for slot in self.flight if slot.lane is self and not slot.answered]

    def waiting(self) -> list[Slot]:
        """Return all slots that have no answer, in their order."""
        return [*self.open(), *self.queue]

    def land(self) -> None:
        """End a flight: slots without an answer are first in the queue again, and somebody leads."""
        self.queue.extendleft(reversed(self.open()))
        self.flight = []
        self.pass_on()

    def pass_on(self) -> None:
        """Hand the lead to the first slot whose caller still waits, and wake that caller."""
        self.queue = deque(_wanted(self.queue))
        self.leader = next((slot for slot in self.queue if not slot.abandoned), None)
        if self.leader is not None:
            self.leader.wake()


def _wanted(queue: Iterable[Slot]) -> list[Slot]:
    """Return the slots without the abandoned ones, save those that a later commit of their run builds on."""
    built_on: set[Fence] = set()
    kept = []
    for slot in reversed(list(queue)):
        if not slot.abandoned or slot.fence in built_on:
            kept.append(slot)
            if slot.fence is not None:
                built_on.add(slot.fence)
    return kept[::-1]
