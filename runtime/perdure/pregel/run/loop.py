"""The loop of a run: prepare, run, apply and record supersteps until nothing is left to do."""

from __future__ import annotations

from collections.abc import Container, Sequence
from functools import partial
from typing import Any

from perdure.aio.cancellation import clean_up
from perdure.checkpoint.base import RunEnd
from perdure.constants import START
from perdure.errors import GraphRecursionError, ParentCommand
from perdure.pregel.events.facts import (
    EVERY_KIND,
    Fact,
    RunEnded,
    RunPaused,
    SuperstepApplied,
    SuperstepStored,
    TaskEnded,
    TaskStarted,
)
from perdure.pregel.events.printing import Printer
from perdure.pregel.lease.claim import CLEANUP_SECONDS
from perdure.pregel.run.ending import ending_of, recorded_end
from perdure.pregel.run.opening import Opened
from perdure.pregel.run.recorder import Recorder
from perdure.pregel.run.run import Run
from perdure.pregel.step.apply import apply
from perdure.pregel.step.failures import add_note
from perdure.pregel.step.outcome import Failed, Finished, Outcome, still_to_run
from perdure.pregel.step.prepare import prepare
from perdure.pregel.step.task import Position, Superstep, Task
from perdure.pregel.work.node_cache import node_cache
from perdure.pregel.work.runner import Runner

_SUCCESS = RunEnd(status="success")


class Loop:
    """The loop of one run, from its opening to its end.

    It observes its runner and makes facts of what it sees, for the recorder, the readers of streams and the
    printer. It makes only facts that somebody listens for.
    """

    __slots__ = (
        "_approved",
        "_budget",
        "_cache",
        "_checkpoint_id",
        "_failure",
        "_heard",
        "_outcomes",
        "_printer",
        "_recorder",
        "_run",
        "_run_tasks",
        "_sink",
        "_source",
        "_state",
        "_step",
        "_tasks",
        "_watch",
    )

    def __init__(self, run: Run, opened: Opened) -> None:
        scope = run.scope
        self._run = run
        self._state = opened.state
        self._recorder = opened.recorder
        self._checkpoint_id, self._source, self._step = opened.position
        self._tasks = opened.tasks
        self._outcomes: Sequence[Outcome] = opened.known
        self._approved = opened.approved
        self._failure = opened.failure
        self._budget = scope.settings.recursion_limit
        self._sink = scope.sink
        self._watch = scope.watch
        self._printer = Printer(run.plan.name, run.plan.state_keys) if scope.debug else None
        heard: Container[type[Fact]] = () if self._sink is None else self._sink.listeners
        self._heard = heard if self._printer is None else EVERY_KIND  # the kinds of facts to make
        listens = self._sink is not None or self._printer is not None
        observed = listens or self._recorder is not None or self._watch is not None
        runner = Runner(run.plan, opened.state, scope, self if observed else None)
        self._cache = cache = node_cache(run.plan, scope)
        self._run_tasks = runner.run_tasks if cache is None else partial(cache.run_tasks, runner)

    async def run_to_end(self) -> Any:
        """Run to the end and return the output.

        Whatever stops the run is raised, after the results of finished tasks are stored.
        """
        try:
            if self._failure is not None:
                raise self._failure
            if not self._tasks:
                await self._nothing_to_do()
            await self._run_supersteps()
        except GeneratorExit:  # the loop was closed, and this coroutine collected: nothing can be awaited
            raise
        except BaseException as error:
            await self._ended_by(error)
            self._tell_end(error)
            raise
        self._tell_end(None)
        return self._run.output.of(self._state)

    async def _run_supersteps(self) -> None:
        """Run supersteps until no task is due, or a breakpoint stops the run."""
        breakpoints = self._run.breakpoints
        while self._tasks:
            if breakpoints is not None and breakpoints.stop_before(self._tasks, self._approved):
                await self._nothing_to_do()
                self._tell_pause()
                return
            tasks = self._tasks
            await self._run_superstep()
            if breakpoints is not None:
                self._approved = False
                if breakpoints.stop_after(tasks):
                    self._tell_pause()
                    return

    async def _run_superstep(self) -> None:
        """Run the tasks that have no stored outcome, merge the outcomes of all, and have them recorded."""
        tasks = self._tasks
        if tasks[0].spec.name != START or len(tasks) > 1:  # a command may have sent a node beside START
            self._spend()
        if self._recorder is not None:
            await self._recorder.before_superstep()
        if self._sink is not None and self._sink.is_full:
            await self._sink.room()
        if self._outcomes:
            if self._printer is not None:
                self._print([outcome for outcome in self._outcomes if outcome.task.handles is None])
            tasks = still_to_run(tasks, self._outcomes)
        if tasks:
            ran = await self._run_tasks(tasks)
            self._outcomes = [*self._outcomes, *ran.outcomes] if self._outcomes else ran.outcomes
            if self._printer is not None:
                self._print(ran.outcomes)
            if not ran.finished:
                if self._cache is not None and ran.cut_short is None:
                    await self._cache.keep(self._outcomes)
                raise ending_of(ran)
        outcomes = self._outcomes
        changed, following, failure = self._apply()
        if self._recorder is not None:
            await self._record(self._recorder, changed, following, failure)
        elif SuperstepApplied in self._heard:
            self._tell(self._applied(changed, stores=False))
        self._tasks, self._outcomes = following, ()
        if self._cache is not None:
            await self._cache.keep(outcomes)  # last: a slow cache must not hold up what is stored
        if failure is not None:
            raise failure

    def _spend(self) -> None:
        """Take one superstep from the recursion limit. Raise GraphRecursionError if none is left."""
        if self._budget == 0:
            limit = self._run.settings.recursion_limit
            raise GraphRecursionError(
                f"Recursion limit of {limit} reached without hitting a stop condition: graph "
                f"{self._run.plan.name!r} has taken {limit} supersteps, and "
                f"{', '.join(sorted({task.name for task in self._tasks}))} would run next. If the graph is "
                "meant to run longer, raise `recursion_limit` in the config."
            )
        self._budget -= 1

    def _apply(self) -> tuple[set[str], list[Task], Exception | None]:
        """Merge the outcomes, and prepare the next superstep.

        Returns:
            The channels that changed, the tasks that follow, and the error of their preparation, if a schema
            refuses the state. The error is not raised here, because the superstep before it has finished and
            is to be recorded.
        """
        run, state = self._run, self._state
        checkpoint_id = run.ids.next()
        changed, updated = apply(state, self._outcomes, checkpoint_id, stored=self._recorder is not None)
        self._checkpoint_id, self._source, self._step = checkpoint_id, "loop", self._step + 1
        superstep = Superstep(checkpoint_id, run.namespace, self._step + 1, self._budget)
        try:
            return changed, prepare(run.plan, state, updated, superstep), None
        except Exception as error:
            return changed, [], error

    @property
    def _position(self) -> Position:
        return Position(self._checkpoint_id, self._source, self._step)

    def _applied(self, changed: set[str], *, stores: bool) -> SuperstepApplied:
        return SuperstepApplied(
            self._position, self._outcomes, changed, self._state, self._run.output, stores
        )

    async def _record(
        self, recorder: Recorder, changed: set[str], following: Sequence[Task], failure: Exception | None
    ) -> None:
        """Have a superstep recorded, then tell listeners that it is applied and, in "sync", stored."""
        run = self._run
        rides = len(self._tasks) == 1 and self._tasks[0].spec.name == START
        stops = run.breakpoints is not None and run.breakpoints.stop_after(self._tasks)
        end = _SUCCESS if run.root and failure is None and (stops or not following) else None
        stores = recorder.stores_at_once and not rides
        fact = self._applied(changed, stores=stores)
        await recorder.superstep_applied(fact, end, rides=rides)
        if SuperstepApplied in self._heard:
            self._tell(fact)
        if stores and SuperstepStored in self._heard:
            self._tell(SuperstepStored(fact.position, changed, self._state, run.output))

    # As the observer of the runner

    def tasks_start(self, tasks: Sequence[Task]) -> None:
        if TaskStarted in self._heard:
            for task in tasks:
                self._tell(TaskStarted(task))

    def task_ended(self, outcome: Outcome, *, others_run: bool) -> None:
        if self._watch is not None and isinstance(outcome, Finished):
            self._watch.progress()
        recorder, sink = self._recorder, self._sink
        told = sink if sink is not None and TaskEnded in sink.listeners else None
        if recorder is None and told is None:
            return
        fact = TaskEnded(outcome, others_run, self._run.output)
        if recorder is not None:
            recorder.task_ended(fact)
        if told is not None:
            told.tell(fact)

    async def handler_begins(self, failed: Failed) -> None:
        if self._recorder is not None:
            await self._recorder.handler_begins(failed)

    async def room(self) -> None:
        if self._sink is not None and self._sink.is_full:
            await self._sink.room()

    # Facts

    def _tell(self, fact: Fact) -> None:
        if self._sink is not None:
            self._sink.tell(fact)
        if self._printer is not None:
            self._printer.tell(fact)

    def _tell_pause(self) -> None:
        if RunPaused in self._heard:
            self._tell(RunPaused(self._position))

    def _tell_end(self, error: BaseException | None) -> None:
        if RunEnded in self._heard:
            self._tell(RunEnded(error))

    def _print(self, outcomes: Sequence[Outcome]) -> None:
        """Tell the printer how tasks ended.

        This comes after the superstep, because the printer warns: a warning that is turned into an error must
        not fail a task.
        """
        for outcome in outcomes:
            if self._printer is not None:
                self._printer.tell(TaskEnded(outcome, False, self._run.output))

    # Ends

    async def _nothing_to_do(self) -> None:
        """Record the end of a run that stops before a superstep."""
        if self._recorder is not None:
            end = _SUCCESS if self._run.root else None
            await self._recorder.run_stopped((), self._position, end)

    async def _ended_by(self, error: BaseException) -> None:
        """Store what finished before `error` stopped the run. A root run's commit also releases the claim.

        The caller raises `error` afterwards, whatever happens here. Only a cancellation that comes meanwhile
        is raised in its place.
        """
        if self._recorder is None:
            return
        if isinstance(error, ParentCommand) and not self._run.root:
            # No commit of this graph follows. Its finished tasks go into the line, and the next commit of
            # the parent graph takes them along: so nothing is awaited here that could be cancelled.
            for outcome in self._outcomes:
                if isinstance(outcome, Finished):
                    self._recorder.task_left_behind(outcome)
            return
        end = recorded_end(error) if self._run.root else None
        stop = partial(self._recorder.run_stopped, self._outcomes, self._position, end)
        try:
            # `error` may be a cancellation, and more can follow. They are held off until the commit is
            # answered, for CLEANUP_SECONDS at most, because results that nobody stores would be computed
            # again, and a thread that nobody gives back would stay busy until its lease runs out.
            await clean_up(stop, CLEANUP_SECONDS)
        except Exception as failure:
            # Noted, not raised: it must not hide what stopped the run. It is the same object if the commit
            # line had failed before, for that stops the run and then answers every further commit.
            if failure is not error:
                add_note(error, f"What had finished could not be stored: {failure!r}")
