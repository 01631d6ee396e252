"""Running one superstep's tasks: side by side, each in a context of its own, until all end or one fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

import anyio
import anyio.lowlevel

from perdure import faults
from perdure.clock import Clock
from perdure.context import current_task
from perdure.data import Command, Send
from perdure.errors import GraphBubbleUp, NodeCancelledError, ParentCommand
from perdure.pregel.attempts import attempted
from perdure.pregel.contexts import in_context
from perdure.pregel.failures import add_note, unwrapped
from perdure.pregel.handlers import hand_over, handler_of
from perdure.pregel.handoff import arriving
from perdure.pregel.inject import injected
from perdure.pregel.plan import Calling, Plan
from perdure.pregel.prepare import given_again
from perdure.pregel.routing import route
from perdure.pregel.runnables import invocation_of, is_runnable
from perdure.pregel.state import ThreadState
from perdure.pregel.task import Task, Writes
from perdure.pregel.threads import in_thread
from perdure.pregel.timeouts import Watch
from perdure.pregel.writes import writes_of

logger = logging.getLogger("perdure")

Result = TypeVar("Result")
Limit = TypeVar("Limit")

STOP_SECONDS: Final = 5.0
"""How long a node whose time is up may take to clean up before it is left alone."""


class Observer(Protocol):
    """Who is told what becomes of tasks."""

    def task_finished(self, task: Task) -> None:
        """A task has succeeded; others may still run."""

    async def handler_begins(self, failed: Task) -> None:
        """A task has failed; its handler begins when this returns."""


OnFailed = Callable[[Task], None]

_RESULTS: Final = frozenset({dict, type(None), Command, Send, list, tuple, str})
"""What a node mostly returns, and what is certainly not to be run."""


async def run_tasks(
    plan: Plan,
    state: ThreadState,
    tasks: Sequence[Task],
    max_concurrency: int | None,
    observer: Observer | None,
) -> list[Task]:
    """Run tasks until all have their writes, or one has its error and the others were stopped.

    Outcomes are left on the tasks; only the cancellation of the caller is raised. A task that fails
    does not stop the others if its node has an error handler, which then runs in its place. Returns
    those that failed, the first one first.
    """
    tasks[0].superstep.unfinished = len(tasks)
    failed: list[Task] = []
    if len(tasks) == 1 and tasks[0].spec.calling is Calling.INPUT and not tasks[0].spec.branches:
        await _run(plan, state, tasks[0], observer, failed.append)  # nobody else's code, so no context
        return failed
    if len(tasks) == 1:
        await _run_alone(plan, state, tasks[0], observer, failed.append)
        return failed
    children = _Children()

    def on_failed(task: Task) -> None:
        failed.append(task)
        if not isinstance(task.error, ParentCommand):  # the others may have commands for the parent as well
            children.stop()

    if max_concurrency is None or max_concurrency >= len(tasks):
        for task in tasks:
            children.start(_run(plan, state, task, observer, on_failed), copy_context())
    else:
        waiting = iter(tasks)
        for _ in range(max_concurrency):
            children.start(_work(plan, state, waiting, observer, on_failed, children), copy_context())
    await children.ended()
    return failed


async def _run_alone(
    plan: Plan, state: ThreadState, task: Task, observer: Observer | None, on_failed: OnFailed
) -> None:
    """Run a task in the caller's asyncio task; a cancellation that the node swallows is raised after it.

    But not after a group of errors: before Python 3.13, what an asyncio.TaskGroup does to its own task
    when it fails looks like a cancellation for ever after.
    """
    current = asyncio.current_task()
    before = 0 if current is None else current.cancelling()
    run = _run(plan, state, task, observer, on_failed, before)
    await in_context(copy_context(), run)
    if current is not None and current.cancelling() > before:
        await anyio.lowlevel.checkpoint_if_cancelled()  # a scope knows only its own exception
        if not isinstance(task.error, BaseExceptionGroup | GraphBubbleUp):
            raise asyncio.CancelledError


class _Children:
    """Plain asyncio tasks that live no longer than the `ended` that waits for them.

    A child of an anyio task group costs 20 to 40 microseconds more, which in a wide fan-out is most
    of what a task costs.

    Attributes:
        stopping: whether they are to end, and nothing new is to begin.
    """

    __slots__ = ("_children", "_ended", "_left", "stopping")

    def __init__(self) -> None:
        self.stopping = False
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
        self.stopping = True
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
    observer: Observer | None,
    on_failed: OnFailed,
    children: _Children,
) -> None:
    """Run one waiting task after the other: how a bound on concurrency needs no task of its own."""
    for task in waiting:
        await in_context(copy_context(), _run(plan, state, task, observer, on_failed))
        if children.stopping:
            return


async def _run(
    plan: Plan,
    state: ThreadState,
    task: Task,
    observer: Observer | None,
    on_failed: OnFailed,
    cancellations: int = 0,
) -> None:
    """Run a task, leaving its outcome on it; only cancellation is raised.

    Args:
        cancellations: how often this asyncio task was cancelled before, which is nothing to the node.
    """
    context = None if task.policies is None else copy_context()
    try:
        if context is None:
            task.writes = await _attempt(plan, state, task)
        else:
            task.writes = await _attempts(plan, state, task, context, cancellations)
        task.superstep.unfinished -= 1
        if observer is not None:
            observer.task_finished(task)
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
        task.error = unwrapped(error)
    if task.writes is not None:  # it had counted as finished, but what it wrote was refused
        task.superstep.unfinished += 1
        task.writes = None
    add_note(task.error, f"During task with name {task.name!r} and id {task.id!r}")
    if context is None or not await _handled(plan, state, task, observer, on_failed, context, cancellations):
        on_failed(task)


async def _attempts(
    plan: Plan, state: ThreadState, task: Task, context: Context, cancellations: int
) -> Writes:
    """Run a node as its policies say; each attempt in a copy of `context`.

    And each in an asyncio task of its own, so that nothing which the node does there can be taken for
    a cancellation of the run.
    """
    assert task.policies is not None

    async def once(attempt: Task) -> Writes:
        body = _attempt(plan, state, attempt)
        watch = attempt.attempt.watch if attempt.attempt is not None else None
        if watch is not None:
            return await _watched(task, watch, body, context.copy())
        end: End[Writes, None] = await race(
            body, context.copy(), None, task.superstep.scope.clock, f"Node {task.name!r}"
        )
        return end.result()

    def stopped() -> bool:
        return _cancellations() > cancellations

    return await attempted(task, task.policies, once, partial(given_again, state, task), stopped)


async def _handled(
    plan: Plan,
    state: ThreadState,
    failed: Task,
    observer: Observer | None,
    on_failed: OnFailed,
    context: Context,
    cancellations: int,
) -> bool:
    """Run the error handler in place of a task that has failed; False if there is none for that."""
    spec, error = handler_of(plan, failed), failed.error
    if spec is None or not isinstance(error, Exception) or _cancellations() > cancellations:
        return False
    handler = hand_over(spec, failed, error, failed.input)

    def handler_failed(handler: Task) -> None:
        if handler.error is not None and handler.error is not error:
            add_note(handler.error, f"It was raised in place of the error of node {failed.name!r}: {error!r}")
        on_failed(handler)

    try:
        handler.input = given_again(state, failed)
        if observer is not None:
            await observer.handler_begins(failed)
    except Exception as failure:
        handler.error = failure
        handler_failed(handler)
        return True
    await in_context(context, _run(plan, state, handler, observer, handler_failed, cancellations))
    return True


async def _attempt(plan: Plan, state: ThreadState, task: Task) -> Any:
    """The node's body, then the conditional edges that leave it: both succeed, or neither counts."""
    spec = task.spec
    if spec.calling is not Calling.INPUT or spec.branches:
        current_task.set(task)  # in the copy of the context that this runs in
    if faults.hook is not None:
        await faults.reach("node.before", spec.name)
    action = partial(spec.action, **injected(task, spec.injects)) if spec.injects else spec.action
    try:
        if spec.calling is Calling.COROUTINE:
            result = await action(task.input)
        elif spec.calling is Calling.THREAD:
            result = await in_thread(action, task.input)
        else:
            result = task.input
    except (ParentCommand, BaseExceptionGroup) as bubble:
        result = arriving(task, bubble)
    if type(result) not in _RESULTS and result is not task.input:
        while is_runnable(result):
            result = await _run_returned(task, result)
    writes = writes_of(plan, task, result)
    if spec.branches:
        await route(plan, state, task, writes, result)
    if faults.hook is not None:
        await faults.reach("node.after", spec.name)
    return writes


async def _watched(task: Task, watch: Watch, body: Coroutine[Any, Any, Writes], context: Context) -> Writes:
    """Run an attempt until it ends or its time is up, which is an error of its own."""

    def up(_: object) -> None:
        watch.over = True

    clock = task.superstep.scope.clock
    end = await race(body, context, watch.expired(), clock, f"Node {task.name!r}", up)
    if end.expired is None:
        return end.result()
    error = watch.error(end.expired)
    if end.error is not None:
        if not isinstance(end.error, Exception | GraphBubbleUp):
            raise end.error
        add_note(error, f"It then raised, while it was cancelled: {end.error!r}")
    raise error


@dataclass(slots=True, kw_only=True)
class End(Generic[Result, Limit]):
    """How a race ended: with what the work came to, or after which limit; None if it was within all."""

    value: Result | None = None
    error: BaseException | None = None
    expired: Limit | None = None

    def result(self) -> Result:
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]  # None only if that is the result


async def race(
    work: Coroutine[Any, Any, Result],
    context: Context,
    expiry: Coroutine[Any, Any, Limit] | None,
    clock: Clock,
    called: str,
    on_expired: Callable[[Limit], None] | None = None,
) -> End[Result, Limit]:
    """Do `work` in a task of its own, and cancel it when `expiry` ends first.

    Either way it has ended when this returns, unless it takes more than STOP_SECONDS to be cancelled:
    then it is left alone, with a warning. Who cancels this, cancels the work.
    """
    body = asyncio.create_task(_outcome(work), context=context)
    timer = None if expiry is None else asyncio.create_task(expiry)
    expired: Limit | None = None
    try:
        cancelled = await _first_ended(body, timer)
        if not body.done():
            if timer is not None and not timer.cancelled():
                expired = timer.result()
                if on_expired is not None:
                    on_expired(expired)
            cancelled = await _stop(body, clock, called) or cancelled
    finally:
        if timer is not None:
            timer.cancel()
            await outlast(timer)
    ended = body.done() and not body.cancelled()
    if (cancelled is not None) if expired is not None else not ended:
        raise cancelled or asyncio.CancelledError
    value, error = body.result() if ended else (None, None)
    return End(value=value, error=error, expired=expired)


async def _stop(body: asyncio.Task[Any], clock: Clock, called: str) -> asyncio.CancelledError | None:
    """Cancel `body` and wait, within bounds, for its end. Returns a cancellation that came meanwhile."""
    body.cancel()
    patience = asyncio.create_task(clock.sleep(STOP_SECONDS))
    try:
        cancelled = await _first_ended(body, patience)
    finally:
        patience.cancel()
        await outlast(patience)
    if not body.done():
        _leave_alone(body, called)
    return cancelled


async def _outcome(work: Coroutine[Any, Any, Result]) -> tuple[Result | None, BaseException | None]:
    """What comes of `work`, as values: what ends programs would end the loop, raised in a task of its own."""
    try:
        return await work, None
    except asyncio.CancelledError as error:
        if _cancellations():
            raise
        return None, error  # a library's, which nobody asked for
    except BaseException as error:
        return None, error


async def _first_ended(
    body: asyncio.Task[Any], timer: asyncio.Task[Any] | None
) -> asyncio.CancelledError | None:
    """Wait until one of the two has ended. A cancellation is passed on to `body` and returned."""
    cancelled: asyncio.CancelledError | None = None
    both = (body,) if timer is None else (body, timer)
    while not any(task.done() for task in both):
        try:
            with anyio.CancelScope(shield=cancelled is not None):
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError as error:
            cancelled = error
            body.cancel()
    return cancelled


_left_alone: set[asyncio.Task[Any]] = set()


def _leave_alone(body: asyncio.Task[Any], called: str) -> None:
    """Nobody waits for `body` any more; but a task that nobody holds could be collected while it runs."""
    _left_alone.add(body)
    body.add_done_callback(_left_alone.discard)
    logger.warning(
        "%s still runs %g seconds after it was cancelled because its time was up. What it returns and what "
        "it writes to the stream will be dropped. Let CancelledError end the node.",
        called,
        STOP_SECONDS,
    )


async def _run_returned(task: Task, runnable: Any) -> Any:
    """Run what a node returned in place of a result, on the node's own input."""
    call, calling, injects = invocation_of(runnable)
    action = partial(call, **injected(task, injects))
    return await (action(task.input) if calling is Calling.COROUTINE else in_thread(action, task.input))


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
