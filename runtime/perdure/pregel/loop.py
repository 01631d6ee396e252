"""The cycle: prepare, run, apply, commit, until nothing is left to do."""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import partial
from typing import Any, Final

from perdure.channels.base import shallow_copy
from perdure.checkpoint.base import RunEnd
from perdure.clock import IdSource
from perdure.constants import START
from perdure.errors import GraphRecursionError
from perdure.pregel.apply import apply
from perdure.pregel.commit import Recorder
from perdure.pregel.plan import Plan
from perdure.pregel.prepare import prepare
from perdure.pregel.runner import clean_up, run_tasks
from perdure.pregel.scope import Scope
from perdure.pregel.session import Session, Superstep
from perdure.pregel.state import ThreadState
from perdure.pregel.stream import Events
from perdure.pregel.task import Task
from perdure.pregel.writes import update_event

CLEANUP_SECONDS: Final = 10.0
"""How long a run that was stopped may take to store what had finished."""


class Loop:
    """One run of one graph, between its opening and its end.

    Attributes:
        checkpoint_id, source, step: the checkpoint that the run stands on.
        tasks: those of the superstep that runs now, or would run next.
        root: whether this run holds the claim, and so ends it.
    """

    __slots__ = (
        "_output",
        "budget",
        "checkpoint_id",
        "events",
        "ids",
        "namespace",
        "output_keys",
        "plan",
        "recorder",
        "root",
        "scope",
        "session",
        "source",
        "state",
        "step",
        "tasks",
    )

    def __init__(
        self,
        plan: Plan,
        state: ThreadState,
        scope: Scope,
        ids: IdSource,
        *,
        session: Session | None,
        recorder: Recorder | None,
        namespace: str,
        root: bool,
        output_keys: str | Sequence[str],
        events: Events | None,
    ) -> None:
        self.plan = plan
        self.state = state
        self.scope = scope
        self.ids = ids
        self.session = session
        self.recorder = recorder
        self.namespace = namespace
        self.root = root
        self.output_keys = output_keys
        self.events = events
        self._output = frozenset((output_keys,) if isinstance(output_keys, str) else output_keys)
        self.budget = scope.settings.recursion_limit
        self.checkpoint_id = ""
        self.source = "input"
        self.step = -2
        self.tasks: list[Task] = []

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
            if not self.tasks:
                await self._nothing_to_do()
            while self.tasks:
                await self._run_superstep()
        except BaseException as error:
            await self._stopped(error)
            raise
        return self._output_now()

    async def _run_superstep(self) -> None:
        tasks, recorder, events = self.tasks, self.recorder, self.events
        if tasks[0].spec.name != START:
            self._spend()
        if recorder is not None:
            await recorder.before_superstep()
        if events is not None:
            await events.room()
        todo = [task for task in tasks if task.writes is None] if tasks[0].superstep.resumed else tasks
        if todo:
            on_finished = None if recorder is None and events is None else self._task_finished
            failed = await run_tasks(
                self.plan, self.state, todo, self.scope.settings.max_concurrency, on_finished
            )
            if failed:
                raise first_failure(failed)
        await self._apply(tasks)

    def _spend(self) -> None:
        if self.budget == 0:
            limit = self.scope.settings.recursion_limit
            raise GraphRecursionError(
                f"Recursion limit of {limit} reached without hitting a stop condition: the graph has taken "
                f"{limit} supersteps, and {', '.join(sorted({task.name for task in self.tasks}))} would run "
                "next. If it is meant to run longer, raise `recursion_limit` in the config."
            )
        self.budget -= 1

    def _task_finished(self, task: Task) -> None:
        if self.recorder is not None and task.superstep.unfinished:
            self.recorder.task_finished(task)
        if self.events is not None and self.events.updates and task.spec.name != START:
            self.put_update(task)

    def put_update(self, task: Task, **extra: Any) -> None:
        """Tell the reader what a task wrote."""
        if self.events is not None:
            update = update_event(task, self.output_keys, self._output)
            self.events.put("updates", {task.name: _handed_out(update), **extra})

    def put_values(self, changed: Set[str] | None = None) -> None:
        """Tell the reader what the output is now; if what changed is given, only if the output did."""
        if self.events is None or not self.events.values:
            return
        if changed is None or not self._output.isdisjoint(changed):
            self.events.put("values", self._output_now())

    def _output_now(self) -> Any:
        keys = self.output_keys
        return self.state.value(keys, None) if isinstance(keys, str) else self.state.select(keys)

    async def _apply(self, tasks: list[Task]) -> None:
        checkpoint_id = self.ids.next()
        changed, updated = apply(self.state, tasks, checkpoint_id, undo=self.recorder is not None)
        self.checkpoint_id, self.source, self.step = checkpoint_id, "loop", self.step + 1
        following = prepare(self.plan, self.state, updated, self.superstep())
        if self.recorder is not None:
            await self.recorder.superstep_finished(
                tasks,
                changed,
                checkpoint_id,
                source="loop",
                step=self.step,
                end=RunEnd(status="success") if self.root and not following else None,
                rides=tasks[0].spec.name == START,
            )
        self.tasks = following
        if self.events is not None:
            self.put_values(changed)

    async def _nothing_to_do(self) -> None:
        if self.recorder is not None:
            end = RunEnd(status="success") if self.root else None
            await self.recorder.run_stopped((), self.checkpoint_id, self.source, self.step, end)

    async def _stopped(self, error: BaseException) -> None:
        """Store what finished before `error` stopped the run, and give the thread back."""
        if self.recorder is None:
            return
        status = "error" if isinstance(error, Exception) else "cancelled"
        end = RunEnd(status=status, error=repr(error)) if self.root else None  # type: ignore[arg-type]
        try:
            place = (self.checkpoint_id, self.source, self.step)
            await clean_up(partial(self.recorder.run_stopped, self.tasks, *place, end), CLEANUP_SECONDS)
        except Exception as failure:
            if failure is not error:
                error.add_note(f"What had finished could not be stored: {failure!r}")


def _handed_out(update: Any) -> Any:
    """An update event's payload, whose containers are the reader's to change."""
    if isinstance(update, list):
        return [_handed_out(part) for part in update]
    if isinstance(update, dict):
        return {key: shallow_copy(value) for key, value in update.items()}
    return shallow_copy(update)


def first_failure(failed: Sequence[Task]) -> BaseException:
    """The error of the task that failed first, with a note of what each of the others raised."""
    (_, first), *others = [(task.name, task.error) for task in failed if task.error is not None]
    for name, error in others:
        first.add_note(f"In the same superstep, node {name!r} failed too: {error!r}")
    return first
