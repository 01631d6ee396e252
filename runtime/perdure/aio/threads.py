"""Sync nodes, in threads that cannot be stopped.

The threads are our own: a hop through a general executor costs about twice as much, and for a sync node
the hop is most of what a superstep costs.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from inspect import isawaitable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final

import anyio
from anyio.lowlevel import RunVar

from perdure.aio.cancellation import CancelledError
from perdure.aio.portal import Home, home, running_loop

logger = logging.getLogger("perdure")

THREAD_SECONDS: Final = 5.0
"""How long a cancelled sync node may take to return before it is left alone."""

WORKER_THREADS: Final = 40
"""How many sync nodes may run at once in one event loop, at each depth of graphs run by sync nodes."""

IDLE_SECONDS: Final = 10.0
"""How long a thread waits for its next node before it ends."""

_thread_depth: ContextVar[int] = ContextVar("perdure_thread_depth", default=0)
_pools: RunVar[dict[int, Pool]] = RunVar("perdure_thread_pools")


async def in_thread(action: Callable[[Any], Any], argument: Any) -> Any:
    """Call a sync node in a worker thread, with the caller's context variables.

    A thread cannot be stopped. Cancelled, this waits THREAD_SECONDS for it to end; then it is left
    alone with a warning, and its result is not read.
    """
    pool = _pool()  # which sets what the call's context must have
    call = Call(action, argument)
    pool.start(call)
    try:
        await call.outcome
    except CancelledError:
        call.abandoned = True
        call.home.close()
        if call.began:
            await _let_end(call)
        raise
    if call.error is not None:
        try:
            raise call.error
        finally:
            call.error = None  # or the error would hold itself, by way of this frame
    return await call.result if isawaitable(call.result) else call.result


async def _let_end(call: Call) -> None:
    """Look now and then whether the call has ended: joined, it could not use this loop to end."""
    with anyio.move_on_after(THREAD_SECONDS, shield=True):
        while not call.ended or call.home.busy:  # noqa: ASYNC110  # nothing in the thread can set an event of this loop
            await anyio.sleep(0.01)
    if not call.ended:
        logger.warning(
            "The sync node %r still runs in its thread %g seconds after it was cancelled. Its result will "
            "not be read, but what it does besides returning it still happens.",
            call.action,
            THREAD_SECONDS,
        )


def _pool() -> Pool:
    """The threads of this loop, for one depth: a sync node that runs a graph waits for deeper ones."""
    depth = _thread_depth.get()
    _thread_depth.set(depth + 1)  # in the task's own context, of which the thread gets a copy
    pools = _pools.get(None)
    if pools is None:
        pools = {}
        _pools.set(pools)
    pool = pools.get(depth)
    if pool is None:
        pool = pools[depth] = Pool()
    return pool


class Call:
    """One call of a sync node.

    Attributes:
        home: where the node's own sync calls are made.
        outcome: done when the call has ended, in whatever way.
        abandoned: whether nobody waits for it any more; if it has not begun, it does not.
    """

    __slots__ = (
        "abandoned",
        "action",
        "argument",
        "began",
        "context",
        "ended",
        "error",
        "home",
        "outcome",
        "result",
    )

    def __init__(self, action: Callable[[Any], Any], argument: Any) -> None:
        self.action = action
        self.argument = argument
        self.home = Home()
        self.context = copy_context()
        self.context.run(home.set, self.home)
        self.outcome = self.home.loop.create_future()
        self.began = self.ended = self.abandoned = False
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Make the call, in the thread that this is called in."""
        self.began = True
        try:
            if not self.abandoned:
                self.result = self.context.run(self.action, self.argument)
        except BaseException as error:
            self.error = error
        finally:
            self.ended = True

    def settle(self) -> None:
        """Tell who waits, in the loop's thread."""
        if not self.outcome.done():
            self.outcome.set_result(None)


class Pool:
    """Up to WORKER_THREADS threads, and the calls that wait for one.

    Only the loop's own thread comes here; workers are let in by `tell`.
    """

    __slots__ = ("_idle", "_size", "_waiting", "tell")

    def __init__(self) -> None:
        self.tell: Callable[..., Any] = running_loop().call_soon_threadsafe
        self._idle: list[Worker] = []
        self._size = 0
        self._waiting: deque[Call] = deque()

    def start(self, call: Call) -> None:
        """Have the call made as soon as there is a thread for it."""
        if self._idle:
            self._idle.pop().calls.put(call)
        elif self._size < WORKER_THREADS:
            Worker(self).calls.put(call)
            self._size += 1  # unless no thread could be started
        else:
            self._waiting.append(call)

    def ended(self, worker: Worker, call: Call) -> None:
        """A worker has made its call, and takes the next that waits."""
        call.settle()
        while self._waiting:
            following = self._waiting.popleft()
            if not following.abandoned:
                worker.calls.put(following)
                return
        self._idle.append(worker)

    def retire(self, worker: Worker) -> None:
        """A worker has waited for long; unless it was given a call meanwhile, it may end."""
        if worker in self._idle:
            self._idle.remove(worker)
            self._size -= 1
            worker.calls.put(None)


class Worker:
    """A thread that makes one call after the other, until it is idle for long or its loop is closed.

    Attributes:
        calls: what it is to do; None ends it.
    """

    __slots__ = ("_pool", "calls")

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.calls: SimpleQueue[Call | None] = SimpleQueue()
        # A daemon, so that a node which never returns does not keep the process from ending.
        Thread(target=self._run, name="perdure sync node", daemon=True).start()

    def _run(self) -> None:
        tell, ended, retire = self._pool.tell, self._pool.ended, self._pool.retire
        try:
            while True:
                try:
                    call = self.calls.get(timeout=IDLE_SECONDS)
                except Empty:
                    tell(retire, self)
                    continue
                if call is None:
                    return
                call.run()
                tell(ended, self, call)
                del call
        except RuntimeError:  # the loop is closed: nobody is left to be told
            return
