"""The line of a run's commits: put in order, sent together, acknowledged in order."""

from __future__ import annotations

from collections import deque

from perdure import faults
from perdure.aio.combiner import Combiner
from perdure.checkpoint.base import BaseCheckpointSaver, Commit
from perdure.errors import StaleRunError


class CommitLine:
    """The commits of one run, in order.

    No task sends in the background. A caller that needs an answer sends everything in the line, and callers
    that come meanwhile find theirs sent. After the first failure nothing more is sent: a later commit must
    not be stored without an earlier one.

    Attributes:
        ending: True once the end of the run was put into the line. Nothing comes after it.
        failure: the error of the first commit that failed.
    """

    __slots__ = ("_acknowledged", "_combiner", "_line", "_put", "_saver", "_supersteps", "ending", "failure")

    def __init__(self, saver: BaseCheckpointSaver) -> None:
        self._saver = saver
        self._line: deque[tuple[Commit, bool]] = deque()
        self._put = 0
        self._acknowledged = 0
        self._supersteps = 0
        self._combiner = Combiner()
        self.ending = False
        self.failure: Exception | None = None

    def put(self, commit: Commit, *, superstep: bool) -> None:
        """Append a commit.

        Args:
            commit: the commit.
            superstep: True if the commit holds a finished superstep.

        Raises:
            StaleRunError: the end of the run is in the line already. A graph that a node has left running
                belongs to no run any more.
        """
        if self.ending:
            raise StaleRunError(
                f"The run on thread {commit.thread_id!r} has ended, but a graph below one of its nodes still "
                "runs and can store nothing. Await everything that a node starts before the node returns."
            )
        self.ending = commit.end is not None
        self._line.append((commit, superstep))
        self._put += 1
        self._supersteps += superstep

    async def settle(self) -> None:
        """Wait until everything that is in the line now is acknowledged."""
        position = self._put
        await self._combiner.until(lambda: self._acknowledged >= position, self._send)

    async def settle_supersteps(self, at_most: int) -> None:
        """Wait until at most `at_most` finished supersteps are unacknowledged."""
        await self._combiner.until(lambda: self._supersteps <= at_most, self._send)

    async def _send(self) -> None:
        """Send everything in the line as one commit. The combiner lets one caller do so at a time.

        A sender may be cancelled before the answer arrives, when the commit may or may not be stored. So its
        commits stay in the line, and the next sender sends them again; to store a commit twice is the same as
        once. Commits that are put while one is on its way stay behind it.
        """
        if self.failure is not None:
            raise self.failure
        count = len(self._line)
        commit = merge([commit for commit, _ in self._line])
        kind = "commit" if commit.checkpoints else "writes"
        try:
            if faults.hook is not None:
                await faults.reach(f"{kind}.send", commit.thread_id)  # type: ignore[arg-type]
            await self._saver.acommit(commit)
            if faults.hook is not None:
                await faults.reach(f"{kind}.acknowledged", commit.thread_id)  # type: ignore[arg-type]
        except Exception as error:  # not a cancellation, which says nothing about the commit
            self.failure = error
            raise
        for _ in range(count):
            self._supersteps -= self._line.popleft()[1]
        self._acknowledged += count


def merge(commits: list[Commit]) -> Commit:
    """Return one commit that has the effect of several commits of one run, one after the other."""
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
