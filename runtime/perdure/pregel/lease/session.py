"""Sessions: the hold on a thread that a run shares with the child graphs below it."""

from __future__ import annotations

from dataclasses import dataclass

import anyio

from perdure.checkpoint.base import BaseCheckpointSaver, Fence
from perdure.clock import Clock, IdSource
from perdure.data import Durability
from perdure.pregel.lease.commit_line import CommitLine


class Wake:
    """A bell to ring when the line holds results that nobody is about to send."""

    __slots__ = ("_event", "_rung")

    def __init__(self) -> None:
        self._event = anyio.Event()
        self._rung: set[object] = set()

    def ring(self, who: object) -> None:
        """Ask for the line to be sent, unless `who` hushes the bell before it is heard."""
        self._rung.add(who)
        self._event.set()

    def hush(self, who: object) -> None:
        """Take back the ring of `who`, because a commit follows at once and takes everything along."""
        self._rung.discard(who)

    async def heard(self) -> bool:
        """Wait for a ring. Return True unless everybody who rang has hushed the bell since."""
        await self._event.wait()
        # No await from here on, so no ring can come between the two resets and be lost.
        self._event = anyio.Event()
        rung, self._rung = self._rung, set()
        return bool(rung)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A run's hold on its thread, shared with the child graphs below it.

    Attributes:
        fence: the proof of its claim; None with a saver that has no leases.
        ids: the source of ids, each greater than all ids of the thread.
        line: the line of its commits and those of its child graphs.
        wake: the bell to ring when the line holds results that nobody is about to send.
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
