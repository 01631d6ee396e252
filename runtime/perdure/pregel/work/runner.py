"""The runner of tasks: side by side, each in a context of its own, until all end or one fails."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Final, Protocol

from perdure import faults
from perdure.aio.cancellation import CancelledError, cancellations
from perdure.aio.contexts import in_context
from perdure.aio.racing import End, race
from perdure.aio.siblings import Siblings
from perdure.aio.threads import in_thread
from perdure.clock import Clock
from perdure.context import current_task
from perdure.data import Command, Send
from perdure.errors import GraphBubbleUp, NodeCancelledError, ParentCommand
from perdure.pregel.plan.plan import Calling, NodeSpec, Plan, Policies
from perdure.pregel.plan.runnables import invocation_of, is_runnable
from perdure.pregel.step.failures import add_note, unwrapped
from perdure.pregel.step.outcome import (
    NO_PREVIEW,
    Failed,
    Finished,
    Left,
    Outcome,
    Ran,
    Stopped,
    StoppedBy,
    Waiting,
    raised_by,
    still_to_run,
)
from perdure.pregel.step.prepare import given_again
from perdure.pregel.step.state import ThreadState
from perdure.pregel.step.task import Task
from perdure.pregel.step.writes import writes_of
from perdure.pregel.work.attempts import attempted
from perdure.pregel.work.handlers import handler_of, handler_task
from perdure.pregel.work.handoff import arriving, departing
from perdure.pregel.work.injection import injected
from perdure.pregel.work.paths import follow_paths
from perdure.pregel.work.running import RunningTask, Scope
from perdure.pregel.work.step_deadline import own_cancellation, within
from perdure.pregel.work.time_limits import Watch


class Observer(Protocol):
    """The receiver of the beginnings and ends of tasks, while other tasks still run."""

    def tasks_start(self, tasks: Sequence[Task]) -> None:
        """Note that the tasks of a superstep begin."""

    def task_ended(self, outcome: Outcome, *, others_run: bool) -> None:
        """Note the outcome of a task. An error that this raises for a finished task makes the task fail."""

    async def handler_begins(self, failed: Failed) -> None:
        """Note that a task has failed. Its error handler begins when this returns."""

    async def room(self) -> None:
        """Wait until the readers of the stream have caught up."""


_RESULTS: Final = frozenset({dict, type(None), Command, Send, list, tuple, str})
"""Types of common results, none of which is runnable. Testing for them is cheaper than `is_runnable`."""


class Runner:
    """The runner of one run's tasks, one superstep after the other.

    Outcomes travel as values, never as exceptions through the task group. A task that fails stops its
    siblings, unless its node has an error handler, which then runs in its place. A task that leaves does not
    stop its siblings, because they may have commands for the parent graph as well.
    """

    __slots__ = ("_observer", "_plan", "_scope", "_state", "_unfinished")

    def __init__(self, plan: Plan, state: ThreadState, scope: Scope, observer: Observer | None) -> None:
        self._plan = plan
        self._state = state
        self._scope = scope
        self._observer = observer
        self._unfinished = 0

    def run_tasks(self, tasks: Sequence[Task]) -> Coroutine[Any, Any, Ran]:
        """Run tasks until all have ended. The exception that cuts them short is returned, not raised."""
        self._unfinished = len(tasks)
        if self._observer is not None:
            self._observer.tasks_start(tasks)
        if len(tasks) == 1 and self._scope.step_timeout is None:
            return self._run_alone(tasks)
        return self._run_several(tasks)

    def _ran(self, tasks: Sequence[Task], ended: list[Outcome], cut_short: BaseException | None) -> Ran:
        if cut_short is None and self._unfinished == 0:
            return Ran(ended, True)
        # A copy, because a body that goes on after `step_timeout` has given up on it may still append to the
        # original.
        ended = list(ended)
        self._stop_others(tasks, ended, cut_short)
        return Ran(ended, False, cut_short)

    def _stop_others(
        self, tasks: Sequence[Task], ended: list[Outcome], cut_short: BaseException | None
    ) -> None:
        """Give an outcome to all tasks and error handlers that have none."""
        by: StoppedBy = "caller" if cut_short is not None else "sibling"
        if isinstance(cut_short, TimeoutError):
            by = "deadline"
        # Tasks are stopped by what cut the superstep short, or by a sibling that failed or waits (one that
        # left its graph stops nobody). Without such a cause, the node has cancelled its own asyncio task.
        stopped = cut_short is not None or any(
            raised_by(outcome) is not None for outcome in ended if not isinstance(outcome, Left)
        )
        for task in still_to_run(tasks, ended):
            self._end(ended, Stopped(task, by) if stopped else Failed(task, _cancelled_itself(task)))

    def _end(self, ended: list[Outcome], outcome: Outcome) -> Outcome:
        ended.append(outcome)
        if self._observer is not None:
            self._observer.task_ended(outcome, others_run=self._unfinished > 0)
        return outcome

    async def _run_alone(self, tasks: Sequence[Task]) -> Ran:
        """Run one task in the caller's asyncio task.

        A cancellation ends the superstep even if the node swallows it.
        """
        [task] = tasks
        ended: list[Outcome] = []
        if task.spec.calling is Calling.INPUT and not task.spec.branches:
            # START runs no code of users: it needs no context of its own and cannot swallow a cancellation.
            await self._run(task, ended, 0)
            return self._ran(tasks, ended, None)
        before = cancellations()  # of the caller's own code, perhaps handled there: they do not count
        try:
            await self._run(task, ended, before)
        except CancelledError as error:
            return self._ran(tasks, ended, error)
        # The node may have swallowed the exception, but asyncio has counted it: the caller gets the
        # cancellation after all.
        return self._ran(tasks, ended, await own_cancellation() if cancellations() > before else None)

    async def _run_several(self, tasks: Sequence[Task]) -> Ran:
        """Run each task in an asyncio task of its own, within the superstep's time limit if there is one."""
        ended: list[Outcome] = []
        running, limit = self._run_together(tasks, ended), self._scope.step_timeout
        cut_short = await (
            running if limit is None else within(limit, self._scope.clock, tasks, ended, running)
        )
        return self._ran(tasks, ended, cut_short)

    async def _run_together(self, tasks: Sequence[Task], ended: list[Outcome]) -> BaseException | None:
        """Run tasks under one task group, at most `max_concurrency` at a time.

        Returns the cancellation that reached the caller meanwhile, if any.
        """
        siblings = Siblings()

        async def child(task: Task) -> None:
            # With a limit, this asyncio task runs one task after the other, and the one before may have
            # cancelled it: that is nothing to this one.
            outcome = await self._run(task, ended, cancellations())
            if isinstance(outcome, Failed | Waiting):  # the handler's outcome, if the node has one
                siblings.stop()
            elif self._observer is not None and self._unfinished:  # else the superstep's commit comes first
                # Before the next task takes the place of this one, so that the tasks of one superstep cannot
                # fill memory with events. Cancelling this wait is safe: the outcome is already noted.
                await self._observer.room()

        limit = self._scope.settings.max_concurrency
        return await siblings.run([partial(child, task) for task in tasks], limit)

    async def _run(self, task: Task, ended: list[Outcome], earlier: int) -> Outcome:
        """Run a task and, if it fails, its error handler. Raise only the cancellation of this asyncio task.

        Args:
            ended: receives the outcomes of the task and of its handler.
            earlier: the number of cancellations of this asyncio task before the task began. They are not
                meant for the node.

        Returns:
            The outcome of the handler if it ran, else that of the task.
        """
        policies = task.spec.policies
        context = None if policies is None else copy_context()
        counted = False
        try:
            if policies is None or context is None:
                # The context is entered here, not around all of this. Before Python 3.13, a task group that
                # failed inside the node leaves a cancellation in the count of this asyncio task. `in_context`
                # takes it back when the attempt ends, before the count is read below.
                attempt = self._attempt(RunningTask(task, self._scope))
                no_code = task.spec.calling is Calling.INPUT and not task.spec.branches
                finished = await (attempt if no_code else in_context(copy_context(), attempt))
            else:
                finished = await self._attempts(task, policies, context, earlier)
            self._unfinished -= 1
            counted = True
            # First the observer, then `ended`: the recorder may refuse the writes because they cannot be
            # stored, and then the task has not finished. No await separates these steps, so that no
            # cancellation can come between them.
            if self._observer is not None:
                self._observer.task_ended(finished, others_run=self._unfinished > 0)
            ended.append(finished)
            return finished
        except CancelledError as error:
            # asyncio counts the cancellations of a task. If the count rose, this task itself is meant, by a
            # sibling, a deadline or the caller: then the exception has to go on.
            if cancellations() > earlier:
                raise
            # Else something that the node awaits was cancelled. Raised on, this would look like a cancelled
            # run: it is an error of the node.
            raised: BaseException = _cancelled_itself(task)
            raised.__cause__ = error
        except GeneratorExit:  # the loop was closed, and this coroutine collected: nothing can be awaited
            raise
        except BaseException as error:
            raised = unwrapped(error)
        if counted:  # the observer refused the writes
            self._unfinished += 1
        add_note(raised, f"During task with name {task.name!r} and id {task.id!r}")
        handler = handler_of(self._plan, task)
        # Signals are not handled: they are no errors. After a cancellation nothing new may begin.
        if (
            context is None
            or handler is None
            or not isinstance(raised, Exception)
            or cancellations() > earlier
        ):
            return self._end(ended, _outcome_of(task, raised))
        return await self._handled(handler, task, raised, ended, context, earlier)

    async def _handled(
        self,
        spec: NodeSpec,
        task: Task,
        error: Exception,
        ended: list[Outcome],
        context: Context,
        earlier: int,
    ) -> Outcome:
        """Run the error handler of a failed task, once the failure is recorded.

        Args:
            context: the context of the node's attempts, which the handler shares.
        """
        # An error before the handler begins becomes its outcome, once the node's own failure is recorded.
        refused: Exception | None = None
        given = task.input
        try:
            given = given_again(self._state, task)
        except Exception as failure:
            refused = failure
        handler = handler_task(spec, task, error, given)
        failed = Failed(task, error, handler)
        self._end(ended, failed)
        if self._observer is not None and refused is None:
            try:
                # Returns when the failure is stored: if the process dies after that, the run that continues
                # it runs the handler again, not the node.
                await self._observer.handler_begins(failed)
            except Exception as failure:
                refused = failure
        if refused is not None:
            outcome = self._end(ended, Failed(handler, refused))
        else:
            outcome = await in_context(context, self._run(handler, ended, earlier))
        raised = raised_by(outcome)
        if raised is not None and raised is not error:
            add_note(raised, f"It was raised in place of the error of node {task.name!r}: {error!r}")
        return outcome

    async def _attempts(self, task: Task, policies: Policies, context: Context, earlier: int) -> Finished:
        """Run a node as its policies demand.

        Each attempt runs in a copy of `context`, and in an asyncio task of its own, so that a time limit can
        cancel it and nothing that it does there can be mistaken for a cancellation of the run.
        """
        clock = self._scope.clock

        async def once(attempt: RunningTask) -> Finished:
            body = self._attempt(attempt)
            watch = None if attempt.attempt is None else attempt.attempt.watch
            if watch is not None:
                return await _watched(task, watch, body, context.copy(), clock)
            end: End[Finished, None] = await race(body, context.copy(), None, clock, f"Node {task.name!r}")
            return end.result()

        def stopped() -> bool:
            return cancellations() > earlier

        return await attempted(
            task, self._scope, policies, once, partial(given_again, self._state, task), stopped
        )

    async def _attempt(self, running: RunningTask) -> Finished:
        """Run the node's body, then follow its conditional edges. Both succeed, or the attempt fails."""
        task = running.task
        spec = task.spec
        if spec.calling is not Calling.INPUT or spec.branches:
            current_task.set(running)  # never reset, because this runs in a copy of the context
        if faults.hook is not None:
            await faults.reach("node.before", spec.name)
        action = partial(spec.action, **injected(running, spec.injects)) if spec.injects else spec.action
        try:
            if spec.calling is Calling.COROUTINE:
                result = await action(task.input)
            elif spec.calling is Calling.THREAD:
                result = await in_thread(action, task.input)
            else:
                result = task.input
        except (ParentCommand, BaseExceptionGroup) as bubble:
            result = arriving(running, bubble)  # raises what is not a command for this node
        if type(result) is not dict and result is not None:
            result = await _settled(running, result)
        writes = writes_of(self._plan, spec, result)
        routed, preview = len(writes), NO_PREVIEW
        if spec.branches:
            preview = await follow_paths(self._plan, self._state, running, writes, result)
        if faults.hook is not None:
            await faults.reach("node.after", spec.name)
        return Finished(task, writes, routed, preview)


def _cancelled_itself(task: Task) -> NodeCancelledError:
    """Return the error of a node that was cancelled, or raised CancelledError, by no doing of the run."""
    return NodeCancelledError(
        f"Node {task.name!r} raised CancelledError, but nobody cancelled the run: something that the node "
        "awaits was cancelled. Handle its CancelledError in the node."
    )


def _outcome_of(task: Task, raised: BaseException) -> Outcome:
    """Return the outcome of a task that raised an exception which no handler takes."""
    match raised:
        case ParentCommand():
            return Left(task, raised)
        case GraphBubbleUp():
            return Waiting(task, raised)
        case _:
            return Failed(task, raised)


async def _watched(
    task: Task, watch: Watch, body: Coroutine[Any, Any, Finished], context: Context, clock: Clock
) -> Finished:
    """Run an attempt until it ends. Raise NodeTimeoutError if its time is up before."""
    end = await race(body, context, watch.expired(), clock, f"Node {task.name!r}", watch.expire)
    if end.expired is None:
        return end.result()
    error = watch.error(end.expired)
    if end.error is not None:
        if not isinstance(end.error, Exception | GraphBubbleUp):
            raise end.error  # it ends the program, which no other error may hide
        add_note(error, f"It then raised, while it was cancelled: {end.error!r}")
    raise error


async def _settled(running: RunningTask, result: Any) -> Any:
    """Return a node's result, or that of the runnable which it returned.

    Raises:
        ParentCommand: the result contains Commands for a parent graph.
    """
    if type(result) not in _RESULTS and result is not running.task.input:
        while is_runnable(result):
            result = await _run_returned(running, result)
    departure = departing(running, result)
    if departure is not None:
        raise departure
    return result


async def _run_returned(task: RunningTask, runnable: Any) -> Any:
    """Run the runnable that a node returned in place of a result, on the node's own input."""
    call, calling, injects = invocation_of(runnable)
    action = partial(call, **injected(task, injects))
    given = task.task.input
    return await (action(given) if calling is Calling.COROUTINE else in_thread(action, given))
