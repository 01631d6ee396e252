"""Children of one anyio task group, each of which is cancelled at most once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextvars import copy_context
from functools import partial
from itertools import islice
from typing import Any

import anyio

from perdure.aio.contexts import in_context

Body = Callable[[], Coroutine[Any, Any, None]]


class Siblings:
    """Bodies that run side by side, end together, and clean up without being cancelled again.

    A cancelled scope of anyio cancels whatever awaits inside it in every turn of the loop, so a node's
    `finally: await ...` would never get to its end. Here no scope reaches the children: one around the
    caller does not, because the group belongs to a task of its own, and the group's own is not cancelled.
    `stop` cancels each child's task, once, as asyncio does. (A shielded scope for each child does the same
    at 8 to 20 microseconds a child; the task costs 10 in all.)

    Attributes:
        stopping: True once the children are to end and no other body is to begin. Read-only to others.
    """

    __slots__ = ("_cancellable", "_errors", "_quiet", "_running", "_unbegun", "stopping")

    def __init__(self) -> None:
        self.stopping = False
        self._unbegun = 0  # children that have not taken their first step
        self._running = 0  # children that have, and have not taken their last
        self._cancellable: dict[asyncio.Task[Any] | None, None] = {}  # those of them not cancelled yet
        self._quiet = asyncio.Event()
        self._errors: list[BaseException] = []

    def stop(self) -> None:
        """Cancel every child that has begun and not ended, but the one that calls this; begin no other body.

        A child that has not begun is not cancelled: its coroutine would never run, and anyio would take
        that for a failure and cancel the group. It sees `stopping` in its first step, and ends.
        """
        self.stopping = True
        calling = asyncio.current_task()
        children, self._cancellable = self._cancellable, {}
        for child in children:
            if child is calling:
                self._cancellable[child] = None  # a later call may come from elsewhere
            elif child is not None:
                child.cancel()

    async def run(self, bodies: Iterable[Body], limit: int | None) -> asyncio.CancelledError | None:
        """Run `bodies` side by side until all have ended, at most `limit` (1 or more) at a time.

        Each runs in a copy of the caller's context. A body that raises CancelledError has ended; any
        other error stops the siblings and is raised as itself.

        Returns:
            The cancellation that reached the caller meanwhile, which the caller has to raise. By then the
            children were stopped, and have ended.
        """
        following = iter(bodies) if limit is None else (partial(_apart, body) for body in bodies)
        first = list(islice(following, limit))  # without a limit, none is left to follow
        with anyio.CancelScope() as shelter:
            host = asyncio.create_task(self._host(first, following, shelter))
            try:
                # While this awaits the host, Task.cancel cancels the host in its place, with the same
                # message. The host outlasts the children before it returns that as a value.
                cancelled = await host
            except asyncio.CancelledError as error:
                # The host had ended in this turn of the loop; or it had not begun, and never will.
                cancelled = (None if host.cancelled() else host.result()) or error
        self._raise_error()
        return cancelled

    async def _host(
        self, first: list[Body], following: Iterator[Body], shelter: anyio.CancelScope
    ) -> asyncio.CancelledError | None:
        """Own the group until it is left; `shelter` is the caller's scope, shielded once it is cancelled."""
        cancelled = None
        self._unbegun = len(first)
        try:
            async with anyio.create_task_group() as group:
                for body in first:
                    group.start_soon(self._child, body, following)
                cancelled = await self._ended(shelter)
        except asyncio.CancelledError as error:  # it came while the group was left, when all had ended
            cancelled = cancelled or error
        return cancelled

    async def _ended(self, shelter: anyio.CancelScope) -> asyncio.CancelledError | None:
        """Wait until no child runs and none will begin; a cancellation stops them once, and is returned.

        This has to happen before the group is left: leaving it, a cancelled task has the scope of the
        group cancelled, which would cancel the children in every turn of the loop.
        """
        cancelled: asyncio.CancelledError | None = None
        while self._running or (self._unbegun and not self.stopping):
            self._quiet.clear()
            try:
                await self._quiet.wait()
            except asyncio.CancelledError as error:
                # From here on a scope around the caller, which would cancel this wait in every turn of the
                # loop, is held off. What calls Task.cancel is not: then this merely waits on.
                shelter.shield = True
                cancelled = cancelled or error
                self.stop()
        return cancelled

    async def _child(self, body: Body | None, following: Iterator[Body]) -> None:
        """Run `body`, then whatever follows that no other child has taken."""
        child = asyncio.current_task()
        self._unbegun -= 1
        self._running += 1
        self._cancellable[child] = None
        try:
            while body is not None and not self.stopping:
                try:  # noqa: SIM105  # `suppress` would be another object for each of thousands
                    await body()
                except asyncio.CancelledError:
                    pass  # raised on, anyio would take it for a failure, and cancel the group
                body = next(following, None)
        except GeneratorExit:  # the loop was closed, and this coroutine collected
            raise
        except BaseException as error:
            self._errors.append(error)
            self.stop()
        finally:
            self._cancellable.pop(child, None)
            self._running -= 1
            if not self._running:
                self._quiet.set()

    def _raise_error(self) -> None:
        if not self._errors:
            return
        first, *others = self._errors
        for other in others:
            first.add_note(f"Beside it, another child of the task group raised: {other!r}")
        try:
            raise first
        finally:
            self._errors.clear()
            del first, others  # or the error would hold itself, by way of this frame


async def _apart(body: Body) -> None:
    """Run `body` in a copy of the context, of which a child that runs several has only one."""
    await in_context(copy_context(), body())
