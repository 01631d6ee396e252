"""Worker threads for sync nodes.

The threads are our own, because a hop through a general executor costs about twice as much, and for a
sync node the hop is most of the cost of its superstep.
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
from perdure.aio.home import Home, home, running_loop

logger = logging.getLogger("perdure")

THREAD_SECONDS: Final = 5.0
"""Seconds that a cancelled sync node may take to return before it is left alone."""

WORKER_THREADS: Final = 40
"""Most sync nodes that run at once in one event loop, at each depth of graphs that sync nodes call."""

IDLE_SECONDS: Final = 10.0
"""Seconds that a thread waits for its next node before it ends."""

_thread_depth: ContextVar[int] = ContextVar("perdure_thread_depth", default=0)
_pools: RunVar[dict[int, Pool]] = RunVar("perdure_thread_pools")


async def in_thread(action: Callable[[Any], Any], argument: Any) -> Any:
    """Call a sync node in a worker thread, with the caller's context variables, and return its result.

    A thread cannot be stopped. When this is cancelled, it waits up to THREAD_SECONDS for the call to end.
    Then the call is left alone, with a warning, and its result is not read.
    """
    pool = _pool()  # before the call copies the context, in which this sets the depth
    call = Call(action, argument)
    pool.start(call)
    try:
        await call.outcome
    except CancelledError:
        call.abandoned = True  # a worker that has not begun it makes no use of it any more
        call.home.close()  # what the node has called ends with it, so that the node itself can return
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
    """Wait until a call has ended, but no longer than THREAD_SECONDS.

    The loop must go on meanwhile: the node's own calls need it to end. Nobody rings when the last of them
    has ended, perhaps on another loop, so this looks now and then.
    """
    # The shield holds off the scope that this was cancelled by, which would go on cancelling the sleep.
    with anyio.move_on_after(THREAD_SECONDS, shield=True):
        while not call.ended or call.home.busy:  # noqa: ASYNC110
            await anyio.sleep(0.01)
    if not call.ended:
        logger.warning(
            "The sync node %r still runs in its thread %g seconds after it was cancelled. Its result will "
            "not be read, but what it does besides returning it still happens.",
            call.action,
            THREAD_SECONDS,
        )


def _pool() -> Pool:
    """Return the pool of this loop for the depth that the caller is at.

    A sync node that calls a graph holds its thread until the graph's own sync nodes have run. If they
    needed threads of the same pool, enough such nodes would wait for one another for ever.
    """
    depth = _thread_depth.get()
    _thread_depth.set(depth + 1)  # in the node's own context, of which the thread gets a copy
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
        home: the loop that the node's own sync calls are made on, and what they have begun.
        outcome: done when the call has ended, in whatever way.
        began: True once a thread has taken the call.
        ended: True once the node has returned or raised.
        abandoned: True once nobody waits for the call any more. If it has not begun, it never does.
        result: the result of the node, once it has ended.
        error: what the node has raised, if anything.
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
        """Call the node, in the thread of a worker."""
        self.began = True
        try:
            if not self.abandoned:
                self.result = self.context.run(self.action, self.argument)
        except BaseException as error:
            self.error = error
        finally:
            self.ended = True

    def settle(self) -> None:
        """Wake who waits for the outcome, in the thread of the loop."""
        if not self.outcome.done():  # as it is if that was cancelled
            self.outcome.set_result(None)


class Pool:
    """Up to WORKER_THREADS threads, and the calls that wait for one.

    All but `tell` is used in the thread of the loop only, so that it needs no lock. Workers go through
    `tell`.

    Attributes:
        tell: has the loop call a function, from any thread.
    """

    __slots__ = ("_idle", "_size", "_waiting", "tell")

    def __init__(self) -> None:
        self.tell: Callable[..., Any] = running_loop().call_soon_threadsafe
        self._idle: list[Worker] = []
        self._size = 0
        self._waiting: deque[Call] = deque()

    def start(self, call: Call) -> None:
        """Give the call to a thread, or let it wait until one is free."""
        if self._idle:
            self._idle.pop().calls.put(call)
        elif self._size < WORKER_THREADS:
            Worker(self).calls.put(call)
            self._size += 1  # after the thread was started: if it could not be, it does not count
        else:
            self._waiting.append(call)

    def ended(self, worker: Worker, call: Call) -> None:
        """Take note that a worker has made its call, and give it the next one that waits."""
        call.settle()
        while self._waiting:
            following = self._waiting.popleft()
            if not following.abandoned:
                worker.calls.put(following)
                return
        self._idle.append(worker)

    def retire(self, worker: Worker) -> None:
        """Let a worker end that has been idle for long."""
        if worker in self._idle:  # else it was given a call before the loop came to this
            self._idle.remove(worker)
            self._size -= 1
            worker.calls.put(None)


class Worker:
    """A thread that makes one call after the other, until it is idle for long or its loop is closed.

    Attributes:
        calls: the calls that it is to make; None ends it.
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
                    # Only the loop knows whether a call is on its way. If none is, it sends None.
                    tell(retire, self)
                    continue
                if call is None:
                    return
                call.run()
                tell(ended, self, call)
                del call  # idle, the thread keeps alive nothing of it
        except RuntimeError:  # from `tell`: the loop is closed, and nobody is left to be told
            return
