"""A saver that records its calls, and can be made slow or broken."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from perdure.checkpoint.base import Claim, ClaimRequest, Commit, Fence, RunEnd
from perdure.checkpoint.memory import InMemorySaver
from perdure.clock import SYSTEM_CLOCK, Clock


class WatchedSaver(InMemorySaver):
    """The in-memory saver under observation.

    Attributes:
        claims, sent, renewals: the calls that it received.
        acknowledged: the commits that it has made.
        before_commit: awaited with each commit before the commit is made.
        renew_error: the error that renewals raise, if any.
        dead: True to refuse releases as well, as if the process were gone.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(clock=clock)
        self.claims: list[ClaimRequest] = []
        self.sent: list[Commit] = []
        self.acknowledged: list[Commit] = []
        self.renewals = 0
        self.reads = 0
        self.before_commit: Callable[[Commit], Awaitable[None]] | None = None
        self.renew_error: Exception | None = None
        self.dead = False

    async def aclaim(self, request: ClaimRequest) -> Claim:
        self.claims.append(request)
        return await super().aclaim(request)

    async def acommit(self, commit: Commit) -> None:
        self.sent.append(commit)
        if self.before_commit is not None:
            await self.before_commit(commit)
        await super().acommit(commit)
        self.acknowledged.append(commit)

    async def arelease(self, fence: Fence, end: RunEnd) -> None:
        if self.dead:
            raise ConnectionError("the process is gone")
        await super().arelease(fence, end)

    async def arenew(self, fence: Fence) -> None:
        self.renewals += 1
        if self.renew_error is not None:
            raise self.renew_error
        await super().arenew(fence)

    def steps(self) -> list[int]:
        """Return the steps of all stored checkpoints, in the order of storing."""
        return [row.metadata["step"] for commit in self.acknowledged for row in commit.checkpoints]


class Brake:
    """A brake that holds every commit until it is released."""

    def __init__(self, saver: WatchedSaver) -> None:
        self.held = anyio.Event()
        self.released = anyio.Event()
        saver.before_commit = self._hold

    async def _hold(self, commit: Commit) -> None:
        self.held.set()
        await self.released.wait()


def refuse(error: Exception, *, nth: int = 1) -> Callable[[Commit], Awaitable[None]]:
    """Return a `before_commit` that fails the nth commit, and no later one."""
    left = nth

    async def before(commit: Commit) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise error

    return before
