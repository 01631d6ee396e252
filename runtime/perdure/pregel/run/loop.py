"""The cycle: prepare, run, apply, commit, until nothing is left to do."""

from __future__ import annotations

from collections.abc import Set
from functools import partial
from typing import Any, Final

from perdure.aio.cancellation import clean_up
from perdure.channels.base import shallow_copy
from perdure.checkpoint.base import RunEnd
from perdure.clock import IdSource
from perdure.constants import INTERRUPT, START
from perdure.errors import GraphRecursionError, ParentCommand
from perdure.pregel.events.printing import Report
from perdure.pregel.lease.session import Session, Superstep
from perdure.pregel.plan.names import names_of
from perdure.pregel.plan.plan import Calling
from perdure.pregel.run.recorder import Recorder
from perdure.pregel.run.request import RunRequest
from perdure.pregel.step.apply import apply
from perdure.pregel.step.failures import add_note
from perdure.pregel.step.prepare import prepare
from perdure.pregel.step.state import ThreadState
from perdure.pregel.step.task import Task
from perdure.pregel.step.writes import update_event
from perdure.pregel.work.handlers import acting, with_handlers
from perdure.pregel.work.handoff import ending_of
from perdure.pregel.work.node_cache import node_cache
from perdure.pregel.work.runner import run_tasks
from perdure.pregel.work.step_deadline import within

CLEANUP_SECONDS: Final = 10.0
"""How long a run that was stopped may take to store what had finished."""


class Loop:
    """One run of one graph, between its opening and its end.

    Attributes:
        checkpoint_id, source, step: the checkpoint that the run stands on.
        tasks: those of the superstep that runs now, or would run next.
        root: whether this run holds the claim, and so ends it.
        breakpoints: where the run stops on purpose; None: nowhere.
        approved: whether the superstep that is next was stopped before already.
        failure: why there are no tasks, where no input could be made for them.
        report: tells of the superstep that runs now, with debug on.
        versioned: whether channels have versions, by which the thread is read again, or a report is made.
        cached: where results of its nodes are looked up; None if they are not.
    """

    __slots__ = (
        "_observes",
        "_output",
        "approved",
        "breakpoints",
        "budget",
        "cached",
        "checkpoint_id",
        "events",
        "failure",
        "ids",
        "namespace",
        "output_keys",
        "plan",
        "recorder",
        "report",
        "root",
        "scope",
        "session",
        "source",
        "state",
        "step",
        "tasks",
        "versioned",
    )

    def __init__(
        self,
        request: RunRequest,
        state: ThreadState,
        ids: IdSource,
        namespace: str,
        *,
        session: Session | None = None,
        recorder: Recorder | None = None,
        root: bool = True,
    ) -> None:
        scope = request.scope
        self.plan = request.plan
        self.scope = scope
        self.output_keys = request.output_keys
        self.events = request.events
        self.breakpoints = request.breakpoints
        self.state = state
        self.ids = ids
        self.namespace = namespace
        self.session = session
        self.recorder = recorder
        self.root = root
        self.approved = False
        self.failure: Exception | None = None
        self._output = frozenset(names_of(request.output_keys))
        self.versioned = recorder is not None or scope.debug
        self._observes = recorder is not None or request.events is not None or scope.watch is not None
        self.cached = node_cache(request.plan, scope)
        self.budget = scope.settings.recursion_limit
        self.checkpoint_id = ""
        self.source = "input"
        self.step = -2
        self.tasks: list[Task] = []
        self.report: Report | None = None

    def superstep(self, *, resumed: bool = False) -> Superstep:
        """The next superstep, from where the run stands."""
        return Superstep(
            self.checkpoint_id,
            self.namespace,
            self.step + 1,
            self.scope,
            self.session,
            self.budget,
            resumed,
        )

    async def run(self) -> Any:
        """Run to the end and return the output; whatever stops it, what finished is stored first."""
        try:
            if self.failure is not None:
                raise self.failure
            if not self.tasks:
                await self._nothing_to_do()
            superstep = self._told_superstep if self.scope.debug else self._run_superstep
            while self.tasks:
                if self.breakpoints is not None and self.breakpoints.stop_before(self.tasks, self.approved):
                    await self._nothing_to_do()
                    self._tell_break()
                    break
                tasks = self.tasks
                await superstep()
                if self.breakpoints is not None:
                    self.approved = False
                    if self.breakpoints.stop_after(tasks):
                        self._tell_break()
                        break
        except ParentCommand as command:
            await self._left(command)
            raise
        except BaseException as error:
            await self._stopped(error)
            raise
        return self._output_now()

    async def _told_superstep(self) -> None:
        """A superstep that is told of; what the tasks did even if it stops there."""
        self.report = report = Report(self.plan.name, self.tasks, self.state)
        try:
            await self._run_superstep()
        except BaseException:
            if self.report is not None:  # so the tasks have not come to their end
                report.ran()
            raise
        report.applied()

    async def _run_superstep(self) -> None:
        tasks, recorder, events = self.tasks, self.recorder, self.events
        if tasks[0].spec.name != START or len(tasks) > 1:  # a command may have sent a node beside START
            self._spend()
        if recorder is not None:
            await recorder.before_superstep()
        if events is not None:
            await events.room()
        superstep = tasks[0].superstep
        todo = tasks
        if superstep.resumed:
            todo = [task for task in acting(tasks) if task.writes is None]
        if todo:
            if self.cached is not None:
                await self.cached.look_up(todo)
            observer = self if self._observes else None
            running = run_tasks(self.plan, self.state, todo, self.scope.settings.max_concurrency, observer)
            limit = self.scope.step_timeout
            failed = await (running if limit is None else within(limit, self.scope.clock, todo, running))
            if self.cached is not None:
                await self.cached.keep(todo)
            if failed:
                raise ending_of(failed)
        if self.report is not None:
            report, self.report = self.report, None
            report.ran()
        await self._apply(with_handlers(tasks) if superstep.handled else tasks)

    def _spend(self) -> None:
        if self.budget == 0:
            limit = self.scope.settings.recursion_limit
            raise GraphRecursionError(
                f"Recursion limit of {limit} reached without hitting a stop condition: the graph has taken "
                f"{limit} supersteps, and {', '.join(sorted({task.name for task in self.tasks}))} would run "
                "next. If it is meant to run longer, raise `recursion_limit` in the config."
            )
        self.budget -= 1

    def task_finished(self, task: Task) -> None:
        """Store what a task wrote, if others still run, and tell the reader."""
        if self.scope.watch is not None:
            self.scope.watch.progress()
        if self.recorder is not None and task.superstep.unfinished:
            self.recorder.task_finished(task)
        if self.events is not None and task.spec.name != START:
            self.put_update(task, cached=task.spec.calling is Calling.CACHED)

    async def handler_begins(self, failed: Task) -> None:
        """A task has failed; return when its handler may begin."""
        if self.recorder is not None:
            await self.recorder.handler_begins(failed)

    def put_update(self, task: Task, *, cached: bool) -> None:
        """Tell the reader what a task wrote; and if so, that it did not run for that."""
        if self.events is not None and self.events.updates:
            update = {task.name: update_event(task, self.output_keys, self._output)}
            self.events.put("updates", {**update, "__metadata__": {"cached": True}} if cached else update)

    def put_values(self, changed: Set[str] | None = None) -> None:
        """Tell the reader what the output is now; if what changed is given, only if the output did."""
        if self.events is None or not self.events.values:
            return
        if changed is None or not self._output.isdisjoint(changed):
            self.events.put("values", self._output_now())

    def _output_now(self) -> Any:
        keys = self.output_keys
        if isinstance(keys, str):
            return shallow_copy(self.state.value(keys, None))
        return self.state.select(keys)

    async def _apply(self, tasks: list[Task]) -> None:
        checkpoint_id = self.ids.next()
        changed, updated = apply(self.state, tasks, checkpoint_id, stored=self.versioned)
        self.checkpoint_id, self.source, self.step = checkpoint_id, "loop", self.step + 1
        failure: Exception | None = None
        try:
            following = prepare(self.plan, self.state, updated, self.superstep())
        except Exception as error:  # a schema refuses the state; what led to it has finished all the same
            following, failure = [], error
        if self.recorder is not None:
            stops = self.breakpoints is not None and self.breakpoints.stop_after(self.tasks)
            ends = self.root and failure is None and (stops or not following)
            await self.recorder.superstep_finished(
                tasks,
                changed,
                checkpoint_id,
                source="loop",
                step=self.step,
                end=RunEnd(status="success") if ends else None,
                rides=tasks[0].spec.name == START and len(tasks) == 1,
            )
        self.tasks = following
        if self.events is not None:
            self.put_values(changed)
        if failure is not None:
            raise failure

    def _tell_break(self) -> None:
        """The run stops on purpose; what is left to do stays with the thread."""
        if self.events is not None and self.events.updates:
            self.events.put("updates", {INTERRUPT: ()})

    async def _nothing_to_do(self) -> None:
        if self.recorder is not None:
            end = RunEnd(status="success") if self.root else None
            await self.recorder.run_stopped((), self.checkpoint_id, self.source, self.step, end)

    async def _left(self, command: ParentCommand) -> None:
        """Store what finished beside a command for a graph around this one, which ends this one."""
        if self.root:
            await self._stopped(command)
        elif self.recorder is not None:
            for task in self.tasks:
                if task.writes is not None and not task.stored:
                    self.recorder.task_finished(task)

    async def _stopped(self, error: BaseException) -> None:
        """Store what finished before `error` stopped the run, and give the thread back."""
        if self.recorder is None:
            return
        end = None
        if self.root and isinstance(error, ParentCommand):  # a thread of its own, left for another graph
            end = RunEnd(status="success")
        elif self.root:
            end = RunEnd(status="error" if isinstance(error, Exception) else "cancelled", error=repr(error))
        try:
            place = (self.checkpoint_id, self.source, self.step)
            tasks = with_handlers(self.tasks)
            await clean_up(partial(self.recorder.run_stopped, tasks, *place, end), CLEANUP_SECONDS)
        except Exception as failure:
            if failure is not error:
                add_note(error, f"What had finished could not be stored: {failure!r}")
