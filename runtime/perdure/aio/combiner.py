"""Shared sending: of the callers who wait, one sends what has gathered for all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio


class Combiner:
    """The turn to send, which the callers who need something sent take one after the other.

    No task sends in the background, and there is no timer. The first caller sends everything that has
    gathered; those who come meanwhile wait, and find their own sent when it is their turn, or send in
    one go what has gathered since. So a batch is what gathered while the last one was in flight, and a
    caller that is alone is not delayed.

    The owner of a combiner keeps what has gathered, and decides what becomes of it when a send fails or
    is cancelled. The combiner only decides who sends.
    """

    __slots__ = ("_turn",)

    def __init__(self) -> None:
        # An ordinary lock of anyio yields to the loop even if it is free: a turn of the loop per send.
        self._turn = anyio.Lock(fast_acquire=True)

    @property
    def sending(self) -> bool:
        """True while a caller has the turn."""
        return self._turn.locked()

    async def until(self, done: Callable[[], bool], send: Callable[[], Awaitable[None]]) -> None:
        """Return once `done()` is true; until then wait for the turn, and send.

        Turns go round in the order of the calls. An error of `send` is raised to the caller that sent;
        those who still wait take their turns, and send again unless they are done.

        Args:
            done: tells if this caller has what it needs.
            send: sends what has gathered. Each call brings the caller closer to being done, or raises.
        """
        if done():
            return
        # Nobody is left waiting: the lock goes to the caller that has waited longest, however its holder
        # leaves it (done, with an error of `send`, or cancelled within it). If that caller is cancelled
        # before it could run, the lock passes it by. So as long as anybody waits, somebody sends.
        async with self._turn:
            # `done` is asked again, as the caller before may have sent what this one waits for.
            while not done():
                await send()

    async def had_turns(self) -> None:
        """Wait until all callers that have the turn, or wait for it now, have had it."""
        async with self._turn:
            pass
