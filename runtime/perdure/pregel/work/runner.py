"""Running one superstep's tasks: side by side, each in a context of its own, until all end or one fails."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Final, Protocol

import anyio
import anyio.lowlevel

from perdure import faults
from perdure.aio.cancellation import CancelledError, Children, End, Wakings, cancellations, race, take_back
from perdure.aio.contexts import in_context
from perdure.aio.threads import in_thread
from perdure.context import current_task
from perdure.data import Command, Send
from perdure.errors import GraphBubbleUp, NodeCancelledError, ParentCommand
from perdure.pregel.plan.plan import Calling, Plan
from perdure.pregel.plan.runnables import invocation_of, is_runnable
from perdure.pregel.step.failures import add_note, unwrapped
from perdure.pregel.step.prepare import given_again
from perdure.pregel.step.routing import route
from perdure.pregel.step.state import ThreadState
from perdure.pregel.step.task import Task, Writes
from perdure.pregel.step.writes import writes_of
from perdure.pregel.work.attempts import attempted
from perdure.pregel.work.handlers import hand_over, handler_of
from perdure.pregel.work.handoff import arriving
from perdure.pregel.work.injection import injected
from perdure.pregel.work.time_limits import Watch


class Observer(Protocol):
    """Who is told what becomes of tasks."""

    def task_finished(self, task: Task) -> None:
        """A task has succeeded; others may still run."""

    async def handler_begins(self, failed: Task) -> None:
        """A task has failed; its handler begins when this returns."""


OnFailed = Callable[[Task], None]

_GROUPS_TAKE_BACK: Final = sys.version_info >= (3, 13)
"""Whether an asyncio.TaskGroup takes back the cancellation by which it wakes its own task."""

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
    children = Children()

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
    """Run a task in the caller's asyncio task; a cancellation that the node swallows is raised after it."""
    before = cancellations()
    run = _run(plan, state, task, observer, on_failed, before)
    woken: Wakings | None = None if _GROUPS_TAKE_BACK else []
    await in_context(copy_context(), run, woken)
    if woken:
        take_back(woken)
    if cancellations() > before:
        await anyio.lowlevel.checkpoint_if_cancelled()  # a scope knows only its own exception
        raise CancelledError


async def _work(
    plan: Plan,
    state: ThreadState,
    waiting: Iterable[Task],
    observer: Observer | None,
    on_failed: OnFailed,
    children: Children,
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
    earlier: int = 0,
) -> None:
    """Run a task, leaving its outcome on it; only cancellation is raised.

    Args:
        earlier: how often this asyncio task was cancelled before, which is nothing to the node.
    """
    context = None if task.policies is None else copy_context()
    try:
        if context is None:
            task.writes = await _attempt(plan, state, task)
        else:
            task.writes = await _attempts(plan, state, task, context, earlier)
        task.superstep.unfinished -= 1
        if observer is not None:
            observer.task_finished(task)
        return
    except CancelledError as error:
        if cancellations() > earlier:
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
    if context is None or not await _handled(plan, state, task, observer, on_failed, context, earlier):
        on_failed(task)


async def _attempts(plan: Plan, state: ThreadState, task: Task, context: Context, earlier: int) -> Writes:
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
        return cancellations() > earlier

    return await attempted(task, task.policies, once, partial(given_again, state, task), stopped)


async def _handled(
    plan: Plan,
    state: ThreadState,
    failed: Task,
    observer: Observer | None,
    on_failed: OnFailed,
    context: Context,
    earlier: int,
) -> bool:
    """Run the error handler in place of a task that has failed; False if there is none for that."""
    spec, error = handler_of(plan, failed), failed.error
    if spec is None or not isinstance(error, Exception) or cancellations() > earlier:
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
    await in_context(context, _run(plan, state, handler, observer, handler_failed, earlier))
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


async def _run_returned(task: Task, runnable: Any) -> Any:
    """Run what a node returned in place of a result, on the node's own input."""
    call, calling, injects = invocation_of(runnable)
    action = partial(call, **injected(task, injects))
    return await (action(task.input) if calling is Calling.COROUTINE else in_thread(action, task.input))
