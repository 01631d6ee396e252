"""Openings: the ways from stored state and an input to a run's first superstep, one function for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import uuid6

from perdure.checkpoint.base import CheckpointTuple
from perdure.constants import PULL, START, is_trigger
from perdure.data import Command
from perdure.errors import MissingNodeError
from perdure.pregel.events.facts import SuperstepApplied, TaskEnded
from perdure.pregel.events.sink import Sink
from perdure.pregel.lease.session import Session
from perdure.pregel.plan.plan import Plan
from perdure.pregel.run.recorder import Recorder
from perdure.pregel.run.renames import Followed, follow
from perdure.pregel.run.restoring import require_destinations, require_nodes, restored
from perdure.pregel.run.run import Run
from perdure.pregel.step.apply import Applied, apply
from perdure.pregel.step.commands import (
    apply_command,
    command_id,
    command_writes,
    input_task,
    kept_commands,
)
from perdure.pregel.step.outcome import Finished, Outcome
from perdure.pregel.step.prepare import fired_anywhere, prepare
from perdure.pregel.step.state import ThreadState
from perdure.pregel.step.task import Position, Superstep, Task, Writes

NOWHERE = Position("", "input", -2)


class Opened(NamedTuple):
    """A run at the beginning of its first superstep.

    Attributes:
        recorder: None for a run that stores nothing.
        tasks: the tasks of the superstep; none if there is nothing to do.
        known: the outcomes of tasks that an earlier run has stored.
        approved: True if the thread stopped at a breakpoint before this superstep, which the run passes now.
        failure: the error for which there are no tasks: a schema refused to make their input.
    """

    state: ThreadState
    recorder: Recorder | None
    position: Position
    tasks: Sequence[Task]
    known: Sequence[Outcome] = ()
    approved: bool = False
    failure: Exception | None = None


# The ways in


async def opened(
    run: Run, head: CheckpointTuple | None, given: Any, *, below: bool, approved: bool = True
) -> Opened:
    """Open a root run in the way that its input and its thread require.

    Args:
        head: the checkpoint to begin at; None if nothing is stored.
        given: a mapping, a Command, or None to continue.
        below: True if the thread has a newer checkpoint than `head`.
        approved: True if the run passes the breakpoint at which the thread stopped.
    """
    if head is None:
        return await fresh(run, given)
    if given is not None and not isinstance(given, Command):
        return await renewed(run, head, given)
    go_on = forked if below else resumed
    return await go_on(run, head, given, approved=approved)


async def orphaned(run: Run, head: CheckpointTuple | None, given: Any, *, below: bool, run_id: str) -> Opened:
    """Open a run whose process is gone: on the checkpoint that it has stored, else on its recorded input.

    A checkpoint of its own is no place where it was stopped, so a breakpoint there still holds. A fork is the
    exception: the run was told to continue from there.
    """
    own = head is not None and head.metadata.get("run_id") == run_id
    forked_here = head is not None and head.metadata.get("source") == "fork"
    return await opened(run, head, given, below=below, approved=forked_here or not own)


async def fresh(run: Run, given: Any) -> Opened:
    """Open a run on a mapping or a Command where nothing is stored."""
    state = ThreadState(run.plan)
    thread = _Opening(run, state, _recorder(run, state, None), NOWHERE)
    if isinstance(given, Command):
        return await thread.begin(command_writes(run.plan, given))
    return await thread.begin(_input_writes(run.plan, given))


async def renewed(run: Run, head: CheckpointTuple, given: Mapping[str, Any]) -> Opened:
    """Open a run on a new input: tasks that the thread had left to do are dropped, its state is kept.

    The writes of commands that are kept beside the head belong to the state, and are merged.
    """
    thread, followed = _stored(run, head)
    thread.merge_commands(kept_commands(followed.stored.pending_writes or ()).values())
    dropped = [Finished(task, [], 0) for task in thread.left_to_do()]
    return await thread.begin(_input_writes(run.plan, given), dropped)


async def resumed(
    run: Run, head: CheckpointTuple, command: Command | None = None, *, approved: bool = False
) -> Opened:
    """Open a run on the tasks that the thread has left to do, with their outcomes that are stored already.

    Args:
        command: a command whose writes are merged first.
        approved: True if the run passes the breakpoint at which the thread stopped.
    """
    thread, followed = _stored(run, head)
    pending = followed.stored.pending_writes or ()
    require_nodes(run.plan, followed.stored)
    kept = kept_commands(pending)
    thread.merge_commands(kept.values())
    if command is not None:
        thread.keep_command(command, kept)
    tasks, failure = thread.due()
    tasks = followed.marked(tasks)
    require_destinations(run.plan, pending)
    return await thread.go_on(tasks, restored(run.plan, tasks, pending), approved, failure)


async def forked(
    run: Run, head: CheckpointTuple, command: Command | None = None, *, approved: bool = False
) -> Opened:
    """Open a run at a checkpoint that is not the newest: it branches off with a checkpoint of its own.

    Results that are stored beside the old checkpoint do not count for the new one.

    Args: as for `resumed`.
    """
    thread, followed = _stored(run, head)
    require_nodes(run.plan, followed.stored)
    kept = kept_commands(followed.stored.pending_writes or ()).values()
    await thread.fork(kept)
    if command is not None:
        thread.keep_command(command, {})
    tasks, failure = thread.due()
    return await thread.go_on(tasks, [], approved, failure)


async def child(run: Run, given: Any, head: CheckpointTuple | None) -> Opened:
    """Open the run of a graph that a node invokes.

    A head exists if the task ran before, in an attempt that failed or a process that is gone. Then the child
    continues from there, and its input is not needed: the head contains the writes of the same input.
    """
    return await (fresh(run, given) if head is None else resumed(run, head))


# Parts of all ways


def _recorder(run: Run, state: ThreadState, followed: Followed | None) -> Recorder | None:
    session = run.session
    if session is None:
        return None
    metadata = dict(run.settings.metadata)
    if session.fence is not None:
        metadata["run_id"] = session.fence.run_id
    metadata["parents"] = {}
    if not run.root and run.scope.above is not None:
        above = run.scope.above.task.superstep
        metadata["parents"] = {above.namespace.text: above.checkpoint_id}
    head, renamed = (None, ()) if followed is None else (followed.stored, followed.channels)
    return Recorder(run.plan, state, session, run.namespace, head, metadata, renamed)


def _stored(run: Run, head: CheckpointTuple) -> tuple[_Opening, Followed]:
    """Load a stored thread, in the names that nodes have today."""
    followed = follow(run.plan, head)
    stored = followed.stored
    state = ThreadState.load(run.plan, stored.checkpoint)
    position = Position(id_of(stored), stored.metadata.get("source", "loop"), stored.metadata.get("step", -2))
    return _Opening(run, state, _recorder(run, state, followed), position), followed


def _input_writes(plan: Plan, given: Mapping[str, Any]) -> Writes:
    return [(START, given)] if START in plan.nodes else list(given.items())


class _Opening:
    """A thread while a run opens it: its state, and the position that moves as inputs are merged."""

    __slots__ = ("_position", "_recorder", "_run", "_state")

    def __init__(self, run: Run, state: ThreadState, recorder: Recorder | None, position: Position) -> None:
        self._run = run
        self._state = state
        self._recorder = recorder
        self._position = position

    def _superstep(self, *, resumed: bool = False) -> Superstep:
        position, run = self._position, self._run
        return Superstep(
            position.checkpoint_id, run.namespace, position.step + 1, run.settings.recursion_limit, resumed
        )

    async def begin(self, writes: Writes, dropped: Sequence[Finished] = ()) -> Opened:
        """Merge an input, and prepare the tasks that it starts."""
        written = Finished(input_task(self._superstep()), writes, len(writes))
        checkpoint_id = self._run.ids.next()
        stored = self._recorder is not None
        applied: Applied = apply(self._state, [*dropped, written], checkpoint_id, stored=stored)
        await self._record(checkpoint_id, "input", applied.changed)
        if self._run.sink is not None:
            await self._tell_state(self._run.sink, applied.changed)
        tasks = prepare(self._run.plan, self._state, applied.updated, self._superstep())
        return Opened(self._state, self._recorder, self._position, tasks)

    async def _record(self, checkpoint_id: str, source: str, changed: set[str]) -> None:
        self._position = Position(checkpoint_id, source, self._position.step + 1)
        if self._recorder is not None:
            fact = SuperstepApplied(self._position, (), changed, self._state, self._run.output, False)
            await self._recorder.superstep_applied(fact, rides=True)

    def left_to_do(self) -> list[Task]:
        """Return the tasks that the thread would run next, deferred ones included, without inputs."""
        state, plan = self._state, self._run.plan
        for foreign in [name for name in state.versions if is_trigger(name) and name not in plan.channels]:
            del state.versions[foreign]
        for deferred in plan.deferred & plan.triggered.keys():
            state.finish(deferred)
        superstep = self._superstep()
        return [
            Task(plan.nodes[name], (PULL, name), tuple(triggers), None, superstep)
            for name, triggers in fired_anywhere(plan, state).items()
        ]

    async def fork(self, commands: Iterable[Writes]) -> None:
        """Record a checkpoint of the run's own, with the writes of commands merged, and stand on it."""
        self._position = self._position._replace(checkpoint_id=self._run.ids.next())
        await self._record(self._position.checkpoint_id, "fork", self.merge_commands(commands))

    def keep_command(self, command: Command, kept: Mapping[str, Writes]) -> None:
        """Keep a command and merge its writes, unless this run did so before it crashed."""
        writes = command_writes(self._run.plan, command)
        fence = None if self._run.session is None else self._run.session.fence
        task_id = command_id(str(uuid6.uuid7()) if fence is None else fence.run_id)
        if task_id in kept or not writes:
            return
        if self._recorder is not None:
            self._recorder.keep_command(self._superstep(), writes, task_id, len(kept))
        self.merge_commands([writes])

    def merge_commands(self, commands: Iterable[Writes]) -> set[str]:
        """Merge the writes of commands and return the channels that changed."""
        changed: set[str] = set()
        for writes in commands:
            position = self._position
            finished, merged = apply_command(self._state, self._superstep(), writes, position.checkpoint_id)
            if self._recorder is not None:
                self._recorder.merged(finished, merged)
            changed |= merged
        return changed

    def due(self) -> tuple[list[Task], Exception | None]:
        """Return the tasks that the thread has left to do, or none and the error of making their inputs."""
        try:
            return prepare(self._run.plan, self._state, None, self._superstep(resumed=True)), None
        except MissingNodeError:
            raise
        except Exception as error:  # a schema refuses the state, which ends the run as any error does
            return [], error

    async def go_on(
        self, tasks: Sequence[Task], known: Sequence[Outcome], approved: bool, failure: Exception | None
    ) -> Opened:
        """Tell readers the state of the thread and the known outcomes, and return the opened run."""
        sink, output = self._run.sink, self._run.output
        if sink is not None:
            await self._tell_state(sink, None)
            if sink.wants(TaskEnded):
                for outcome in known:
                    sink.tell(TaskEnded(outcome, True, output))
        return Opened(self._state, self._recorder, self._position, tasks, known, approved, failure)

    async def _tell_state(self, sink: Sink, changed: set[str] | None) -> None:
        if sink.wants(SuperstepApplied):
            session = self._run.session
            if session is not None and session.durability == "sync" and not self._is_claimed(session):
                await session.line.settle()
            sink.tell(SuperstepApplied(self._position, (), changed, self._state, self._run.output, False))

    def _is_claimed(self, session: Session) -> bool:
        """Return True if the claim has recorded what this run was given, so that it is stored already."""
        return self._run.root and session.fence is not None


def id_of(stored: CheckpointTuple) -> str:
    """Return the id of a stored checkpoint."""
    return stored.checkpoint["id"]
