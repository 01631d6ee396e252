"""Running one superstep's tasks: side by side, each in a context of its own, until all end or one fails."""

from __future__ import annotations

import asyncio
import logging
import threading
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Sequence
from contextvars import Context, ContextVar, copy_context
from functools import partial
from inspect import isawaitable
from typing import Any, Final

import anyio
import anyio.lowlevel
import anyio.to_thread
from anyio.lowlevel import RunVar

from perdure import faults
from perdure.context import current_task
from perdure.errors import NodeCancelledError
from perdure.pregel.inject import injected
from perdure.pregel.plan import Calling, Plan
from perdure.pregel.routing import route
from perdure.pregel.state import ThreadState
from perdure.pregel.task import Task
from perdure.pregel.writes import writes_of

logger = logging.getLogger("perdure")

OnFinished = Callable[[Task], None]
OnFailed = Callable[[Task], None]

THREAD_SECONDS: Final = 5.0
"""How long a cancelled sync node may take to return before it is left alone."""

WORKER_THREADS: Final = 40
"""How many sync nodes may run at once in one event loop, at each depth of graphs run by sync nodes."""

_thread_depth: ContextVar[int] = ContextVar("perdure_thread_depth", default=0)
_limiters: RunVar[dict[int, anyio.CapacityLimiter]] = RunVar("perdure_thread_limiters")


async def run_tasks(
    plan: Plan,
    state: ThreadState,
    tasks: Sequence[Task],
    max_concurrency: int | None,
    on_finished: OnFinished | None,
) -> list[Task]:
    """Run tasks until all have their writes, or one has its error and the others were stopped.

    Outcomes are left on the tasks; only the cancellation of the caller is raised. `on_finished` is
    called for each task that succeeds, as it does. Returns those that failed, the first one first.
    """
    tasks[0].superstep.unfinished = len(tasks)
    failed: list[Task] = []
    if len(tasks) == 1 and tasks[0].spec.calling is Calling.INPUT and not tasks[0].spec.branches:
        await _run(plan, state, tasks[0], on_finished, failed.append)  # nobody else's code, so no context
        return failed
    if len(tasks) == 1:
        await _run_alone(plan, state, tasks[0], on_finished, failed.append)
        return failed
    children = _Children()

    def on_failed(task: Task) -> None:
        failed.append(task)
        children.stop()

    if max_concurrency is None or max_concurrency >= len(tasks):
        for task in tasks:
            children.start(_run(plan, state, task, on_finished, on_failed), copy_context())
    else:
        waiting = iter(tasks)
        for _ in range(max_concurrency):
            children.start(_work(plan, state, waiting, on_finished, on_failed), copy_context())
    await children.ended()
    return failed


async def _run_alone(
    plan: Plan, state: ThreadState, task: Task, on_finished: OnFinished | None, on_failed: OnFailed
) -> None:
    """Run a task in the caller's asyncio task; a cancellation that the node swallows is raised after it."""
    current = asyncio.current_task()
    before = 0 if current is None else current.cancelling()
    run = _run(plan, state, task, on_finished, on_failed, before)
    await _in_context(copy_context(), run)
    if current is not None and current.cancelling() > before:
        await anyio.lowlevel.checkpoint_if_cancelled()  # a scope knows only its own exception
        raise asyncio.CancelledError


class _Children:
    """Plain asyncio tasks that live no longer than the `ended` that waits for them.

    A child of an anyio task group costs 20 to 40 microseconds more, which in a wide fan-out is most
    of what a task costs.
    """

    __slots__ = ("_children", "_ended", "_left")

    def __init__(self) -> None:
        self._children: list[asyncio.Task[None]] = []
        self._ended = asyncio.Event()
        self._left = 0

    def start(self, coroutine: Coroutine[Any, Any, None], context: Context) -> None:
        child = asyncio.create_task(coroutine, context=context)
        child.add_done_callback(self._one_ended)
        self._children.append(child)
        self._left += 1

    def _one_ended(self, _: asyncio.Task[None]) -> None:
        self._left -= 1
        if self._left == 0:
            self._ended.set()

    def stop(self) -> None:
        """Cancel all children but the one that calls this."""
        current = asyncio.current_task()
        for child in self._children:
            if child is not current:
                child.cancel()

    async def ended(self) -> None:
        """Wait until all have ended; cancelled itself, cancel them and still wait for them."""
        cancelled: asyncio.CancelledError | None = None
        while self._left:
            try:
                with anyio.CancelScope(shield=cancelled is not None):
                    await self._ended.wait()
            except asyncio.CancelledError as error:
                cancelled = error
                self.stop()
        if cancelled is not None:
            raise cancelled
        for child in self._children:
            if not child.cancelled():
                child.result()


async def _work(
    plan: Plan,
    state: ThreadState,
    waiting: Iterable[Task],
    on_finished: OnFinished | None,
    on_failed: OnFailed,
) -> None:
    """Run one waiting task after the other: how a bound on concurrency needs no task of its own."""
    for task in waiting:
        await _in_context(copy_context(), _run(plan, state, task, on_finished, on_failed))
        if task.error is not None or _cancellations():
            return


async def _run(
    plan: Plan,
    state: ThreadState,
    task: Task,
    on_finished: OnFinished | None,
    on_failed: OnFailed,
    cancellations: int = 0,
) -> None:
    """Run a task, leaving its outcome on it; only cancellation is raised.

    Args:
        cancellations: how often this asyncio task was cancelled before, which is nothing to the node.
    """
    try:
        task.writes = await _attempt(plan, state, task)
        task.superstep.unfinished -= 1
        if on_finished is not None:
            on_finished(task)
        return
    except asyncio.CancelledError as error:
        if _cancellations() > cancellations:
            raise
        task.error = NodeCancelledError(
            f"Node {task.name!r} raised CancelledError although nobody cancelled the run; "
            "something that it awaits was cancelled."
        )
        task.error.__cause__ = error
    except GeneratorExit:
        raise
    except BaseException as error:
        task.error = error
    task.writes = None
    task.error.add_note(f"During task with name {task.name!r} and id {task.id!r}")
    on_failed(task)


async def _attempt(plan: Plan, state: ThreadState, task: Task) -> Any:
    """The node's body, then the conditional edges that leave it: both succeed, or neither counts."""
    spec = task.spec
    if spec.calling is not Calling.INPUT or spec.branches:
        current_task.set(task)  # in the copy of the context that this runs in
    if faults.hook is not None:
        await faults.reach("node.before", spec.name)
    action = partial(spec.action, **injected(task, spec.injects)) if spec.injects else spec.action
    if spec.calling is Calling.COROUTINE:
        result = await action(task.input)
    elif spec.calling is Calling.THREAD:
        result = await _in_thread(action, task.input)
    else:
        result = task.input
    writes = writes_of(plan, task, result)
    if spec.branches:
        await route(plan, state, task, writes, result)
    if faults.hook is not None:
        await faults.reach("node.after", spec.name)
    return writes


Service = Callable[[], Awaitable[None]]


class Attendants:
    """Services that run beside something, in plain asyncio tasks, until they are dismissed.

    Every run that stores anything has two of them, which mostly do nothing: in a task group, with its
    scopes and what it notes about cancelling them, they would cost several times what they do here.
    """

    __slots__ = ("_on_failure", "_tasks")

    def __init__(self, services: Iterable[Service], on_failure: Callable[[Exception], None]) -> None:
        self._on_failure = on_failure
        self._tasks = [asyncio.create_task(self._serve(service)) for service in services]

    async def _serve(self, service: Service) -> None:
        try:
            await service()
        except Exception as failure:
            self._on_failure(failure)

    async def dismiss(self) -> None:
        """Cancel them all and wait until they have ended."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            await outlast(task)


async def outlast(task: asyncio.Task[Any]) -> None:
    """Wait until a task has ended, however often the waiting is cancelled; that is raised when it has."""
    cancelled: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError as error:
                cancelled = error
    if not task.cancelled():
        task.exception()  # read, lest it be reported as forgotten
    if cancelled is not None:
        raise cancelled


async def clean_up(work: Callable[[], Awaitable[None]], seconds: float) -> None:
    """Do `work` to its end even if this is cancelled, and again; TimeoutError when it takes too long.

    A shield of anyio holds off its own scopes, not what calls `Task.cancel`: so in a task of its own.
    """

    async def bounded() -> None:
        with anyio.fail_after(seconds):
            await work()

    task = asyncio.create_task(bounded())
    await outlast(task)
    if task.cancelled():  # as all tasks are when the loop shuts down
        await bounded()
    else:
        task.result()


def _cancellations() -> int:
    """How often this asyncio task was cancelled and has not taken it back."""
    current = asyncio.current_task()
    return 0 if current is None else current.cancelling()


async def _in_thread(action: Callable[[Any], Any], argument: Any) -> Any:
    """Call a sync node in a worker thread.

    A thread cannot be stopped. Cancelled, this waits THREAD_SECONDS for it to end; then it is left
    alone with a warning, and its result is not read.
    """
    began, ended = threading.Event(), threading.Event()

    def call() -> Any:
        began.set()
        try:
            return action(argument)
        finally:
            ended.set()

    try:
        result = await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=_thread_limiter())
    except asyncio.CancelledError:
        if began.is_set():
            await _let_end(ended, action)
        raise
    return await result if isawaitable(result) else result


async def _let_end(ended: threading.Event, action: Callable[[Any], Any]) -> None:
    """Look now and then whether the thread has ended: joined, it could not use this loop to end."""
    with anyio.move_on_after(THREAD_SECONDS, shield=True):
        while not ended.is_set():  # noqa: ASYNC110  # nothing in the thread can set an event of this loop
            await anyio.sleep(0.01)
    if not ended.is_set():
        logger.warning(
            "The sync node %r still runs in its thread %g seconds after it was cancelled. Its result will "
            "not be read, but what it does besides returning it still happens.",
            action,
            THREAD_SECONDS,
        )


def _thread_limiter() -> anyio.CapacityLimiter:
    """The bound on worker threads, one per depth: a sync node that runs a graph waits for deeper ones."""
    depth = _thread_depth.get()
    _thread_depth.set(depth + 1)  # in the task's own context, of which the thread gets a copy
    limiters = _limiters.get(None)
    if limiters is None:
        limiters = {}
        _limiters.set(limiters)
    return limiters.setdefault(depth, anyio.CapacityLimiter(WORKER_THREADS))


@types.coroutine
def _in_context(context: Context, coroutine: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Await `coroutine` here, in this asyncio task, but with the context variables of `context`.

    What a node sets is then seen by nobody else, as if it ran in a task of its own, without the
    price of one. Every step of the coroutine is taken inside `context`; what it waits for, and what
    is thrown at it, passes through untouched.
    """
    step: Callable[[Any], Any] = coroutine.send
    argument: Any = None
    while True:
        try:
            waited_for = context.run(step, argument)
        except StopIteration as returned:
            return returned.value
        try:
            argument = yield waited_for
            step = coroutine.send
        except GeneratorExit:
            context.run(coroutine.close)
            raise
        except BaseException as thrown:
            argument, step = thrown, coroutine.throw
