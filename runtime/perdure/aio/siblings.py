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

    An anyio scope that is cancelled goes on cancelling whatever awaits inside it. A node's
    `finally: await ...` would never get to its end. So every body runs in a shielded scope of its own,
    which neither the group's scope nor one around the caller reaches, and `stop` cancels its task once,
    as asyncio does.

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
        following = iter(bodies)
        works = list(islice(following, limit))
        if limit is not None:
            works = [partial(self._one_after_the_other, body, following) for body in works]
        self._unbegun = len(works)
        cancelled = None
        try:
            with anyio.CancelScope() as shelter:
                async with anyio.create_task_group() as group:
                    for work in works:
                        group.start_soon(self._child, work)
                    cancelled = await self._ended(shelter)
        except asyncio.CancelledError as error:  # it came while the group was left, when all had ended
            cancelled = cancelled or error
        self._raise_error()
        return cancelled

    async def _ended(self, shelter: anyio.CancelScope) -> asyncio.CancelledError | None:
        """Wait until no child runs and none will begin; a cancellation is passed on to them, and returned.

        This has to happen before the group is left: leaving it, a cancelled caller has the group's own
        scope cancelled, which no child here would notice.
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

    async def _child(self, work: Body) -> None:
        child = asyncio.current_task()
        self._unbegun -= 1
        self._running += 1
        self._cancellable[child] = None
        try:
            if not self.stopping:
                with anyio.CancelScope(shield=True):
                    await work()
        except asyncio.CancelledError:
            pass  # raised on, anyio would take it for a failure, and cancel the group
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

    async def _one_after_the_other(self, body: Body, following: Iterator[Body]) -> None:
        """Run `body`, then whatever follows that no other child has taken, each in a context of its own."""
        await in_context(copy_context(), body())
        for other in following:
            if self.stopping:
                return
            await in_context(copy_context(), other())

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
