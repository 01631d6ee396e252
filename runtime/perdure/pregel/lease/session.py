"""What a run shares with the child graphs below it: its thread, its ids, and one line of commits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import anyio

from perdure import faults
from perdure.checkpoint.base import BaseCheckpointSaver, Commit, Fence
from perdure.clock import Clock, IdSource
from perdure.data import Durability
from perdure.errors import StaleRunError


class CommitLine:
    """The commits of one run, in order.

    There is no sender: whoever needs an answer sends all that has gathered, and those who come
    meanwhile find it sent. What was sent but not acknowledged stays in the line and is sent again,
    which a saver allows; after the first failure nothing more is sent.

    Attributes:
        ending: whether the end of the run is in the line, or was; nothing comes after it.
        failure: what the first commit that failed raised.
    """

    __slots__ = ("_acknowledged", "_line", "_lock", "_put", "_saver", "_supersteps", "ending", "failure")

    def __init__(self, saver: BaseCheckpointSaver) -> None:
        self._saver = saver
        self._line: deque[tuple[Commit, bool]] = deque()
        self._put = 0
        self._acknowledged = 0
        self._supersteps = 0
        self._lock = anyio.Lock(fast_acquire=True)  # or each commit would go round the loop once more
        self.ending = False
        self.failure: Exception | None = None

    def put(self, commit: Commit, *, superstep: bool) -> None:
        """Append a commit; `superstep` says that it holds a finished superstep.

        Raises StaleRunError after the end: a graph that a node has left running belongs to no run.
        """
        if self.ending:
            raise StaleRunError(
                f"The run on thread {commit.thread_id!r} has ended; what still works below one of its nodes "
                "can store nothing. Await what a node starts before it returns."
            )
        self.ending = commit.end is not None
        self._line.append((commit, superstep))
        self._put += 1
        self._supersteps += superstep

    async def settle(self) -> None:
        """Return when everything that is in the line now is acknowledged."""
        position = self._put
        while self._acknowledged < position:
            await self._take_turn(lambda: self._acknowledged < position)

    async def settle_supersteps(self, at_most: int) -> None:
        """Return when at most so many finished supersteps are unacknowledged."""
        while self._supersteps > at_most:
            await self._take_turn(lambda: self._supersteps > at_most)

    async def _take_turn(self, wanted: Callable[[], bool]) -> None:
        async with self._lock:
            if self.failure is not None:
                raise self.failure
            if wanted():
                await self._send()

    async def _send(self) -> None:
        count = len(self._line)
        commit = merge([commit for commit, _ in self._line])
        kind = "commit" if commit.checkpoints else "writes"
        try:
            if faults.hook is not None:
                await faults.reach(f"{kind}.send", commit.thread_id)  # type: ignore[arg-type]
            await self._saver.acommit(commit)
            if faults.hook is not None:
                await faults.reach(f"{kind}.acknowledged", commit.thread_id)  # type: ignore[arg-type]
        except Exception as error:
            self.failure = error
            raise
        for _ in range(count):
            self._supersteps -= self._line.popleft()[1]
        self._acknowledged += count


def merge(commits: list[Commit]) -> Commit:
    """One commit that does what `commits`, all of one run, do one after the other."""
    if len(commits) == 1:
        return commits[0]
    last = commits[-1]
    return Commit(
        thread_id=last.thread_id,
        fence=last.fence,
        last_id=max((c.last_id for c in commits if c.last_id is not None), default=None),
        checkpoints=[row for commit in commits for row in commit.checkpoints],
        blobs=[row for commit in commits for row in commit.blobs],
        writes=[row for commit in commits for row in commit.writes],
        end=last.end,
    )


class Wake:
    """A bell for results that nobody is about to send."""

    __slots__ = ("_event", "_rung")

    def __init__(self) -> None:
        self._event = anyio.Event()
        self._rung: set[object] = set()

    def ring(self, who: object) -> None:
        """Ask for what is in the line to be sent, unless `who` hushes the bell before it is heard."""
        self._rung.add(who)
        self._event.set()

    def hush(self, who: object) -> None:
        """Take back what `who` asked for: a commit that follows at once takes it along."""
        self._rung.discard(who)

    async def heard(self) -> bool:
        """Wait for a ring; return whether there is still reason to send."""
        await self._event.wait()
        self._event = anyio.Event()
        rung, self._rung = self._rung, set()
        return bool(rung)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A run's hold on its thread, shared with the child graphs below it.

    Attributes:
        fence: the proof of its claim; None with a saver that has no leases.
        ids: draws ids greater than all of the thread.
        line: where its commits go, and those of the child graphs below it.
        wake: the bell to ring when the line holds something that nobody is about to send.
    """

    saver: BaseCheckpointSaver
    thread_id: str
    fence: Fence | None
    durability: Durability
    clock: Clock
    ids: IdSource
    line: CommitLine
    wake: Wake


def open_session(
    saver: BaseCheckpointSaver, thread_id: str, fence: Fence | None, durability: Durability, clock: Clock
) -> Session:
    """Return a session with a line of its own."""
    return Session(
        saver=saver,
        thread_id=thread_id,
        fence=fence,
        durability=durability,
        clock=clock,
        ids=IdSource(clock),
        line=CommitLine(saver),
        wake=Wake(),
    )
