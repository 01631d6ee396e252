"""From a checkpoint and an input to the first superstep."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import uuid6

from perdure.channels.named_barrier_value import arrived
from perdure.checkpoint.base import CheckpointTuple, PendingWrite
from perdure.constants import (
    BRANCH,
    ERROR,
    ERROR_SOURCE,
    INPUT,
    JOIN,
    NO_WRITES,
    PULL,
    RESERVED_SLOTS,
    START,
    TASKS,
    is_trigger,
)
from perdure.data import Command
from perdure.errors import MissingNodeError
from perdure.pregel.lease.session import Session, Superstep
from perdure.pregel.plan.plan import Plan
from perdure.pregel.run.loop import Loop
from perdure.pregel.run.recorder import Recorder
from perdure.pregel.run.renames import follow
from perdure.pregel.run.request import RunRequest
from perdure.pregel.step.apply import Applied, apply
from perdure.pregel.step.commands import INPUT_SPEC, apply_command, command_id, command_task, kept_commands
from perdure.pregel.step.prepare import fired_anywhere, prepare
from perdure.pregel.step.state import ThreadState
from perdure.pregel.step.task import Task, Writes
from perdure.pregel.work.handlers import restore_handler, with_handlers

logger = logging.getLogger("perdure")

_REMEDY: Final = "If a node was renamed, say so: compile(renamed={'<old name>': '<new name>'})."


def stored_loop(
    request: RunRequest,
    session: Session,
    head: CheckpointTuple | None,
    parent: Task | None = None,
    namespace: str = "",
) -> Loop:
    """A run on what is stored; below the node of `parent`, if that is given."""
    plan = request.plan
    followed = None if head is None else follow(plan, head)
    head = None if followed is None else followed.stored
    state = ThreadState(plan) if head is None else ThreadState.load(plan, head.checkpoint)
    metadata = dict(request.settings.metadata)
    if session.fence is not None:
        metadata["run_id"] = session.fence.run_id
    metadata["parents"] = {}
    if parent is not None:
        metadata["parents"] = {parent.superstep.namespace: parent.superstep.checkpoint_id}
    recorder = Recorder(plan, state, session, namespace, head, metadata)
    if followed is not None:
        recorder.store_again(followed.channels)
    root = parent is None
    loop = Loop(request, state, session.ids, namespace, session=session, recorder=recorder, root=root)
    if head is not None:
        loop.checkpoint_id = id_of(head)
        loop.source, loop.step = head.metadata.get("source", "loop"), head.metadata.get("step", -2)
    return loop


async def start(loop: Loop, given: Mapping[str, Any], head: CheckpointTuple | None = None) -> None:
    """Write an input; what the thread still had to do is dropped, what commands wrote to its state is not."""
    if head is not None and head.pending_writes:
        _merge_commands(loop, kept_commands(follow(loop.plan, head).stored.pending_writes or ()).values())
    superstep = loop.superstep()
    written = Task(INPUT_SPEC, (PULL, INPUT), (), None, superstep)
    written.writes = [(START, given)] if START in loop.plan.nodes else list(given.items())
    dropped = _left_to_do(loop, superstep) if loop.state.versions else []
    applied = await _apply_input(loop, [*dropped, written])
    loop.put_values(applied.changed)
    loop.tasks = prepare(loop.plan, loop.state, applied.updated, loop.superstep())


def _left_to_do(loop: Loop, superstep: Superstep) -> list[Task]:
    """What the thread would do next, with what waits until nothing else is left; without inputs."""
    versions = loop.state.versions
    for foreign in [name for name in versions if is_trigger(name) and name not in loop.plan.channels]:
        del versions[foreign]
    for deferred in loop.plan.deferred & loop.plan.triggered.keys():
        loop.state.finish(deferred)
    return [
        Task(loop.plan.nodes[name], (PULL, name), tuple(triggers), None, superstep)
        for name, triggers in fired_anywhere(loop.plan, loop.state).items()
    ]


async def _record_opening(loop: Loop, source: str, changed: set[str]) -> None:
    loop.source, loop.step = source, loop.step + 1
    if loop.recorder is not None:
        await loop.recorder.superstep_finished(
            (), changed, loop.checkpoint_id, source=source, step=loop.step, rides=True
        )


async def start_with(loop: Loop, command: Command) -> None:
    """Write a command to a thread that has nothing stored."""
    applied = await _apply_input(loop, [command_task(loop.plan, command, loop.superstep())])
    loop.put_values(applied.changed)
    loop.tasks = prepare(loop.plan, loop.state, applied.updated, loop.superstep())


async def _apply_input(loop: Loop, tasks: Sequence[Task]) -> Applied:
    loop.checkpoint_id = loop.ids.next()
    applied = apply(loop.state, tasks, loop.checkpoint_id, stored=loop.versioned)
    await _record_opening(loop, "input", applied.changed)
    return applied


async def resume(
    loop: Loop,
    head: CheckpointTuple,
    *,
    fork: bool = False,
    command: Command | None = None,
    approved: bool = False,
) -> None:
    """Prepare what the thread still has to do, with what of it is stored already.

    Args:
        fork: whether to continue from below the head, on a checkpoint of its own that inherits no results.
        command: what to write first.
        approved: whether going on here means to pass the breakpoint at which the thread stopped.
    """
    followed = follow(loop.plan, head)
    head = followed.stored
    _require_nodes(loop.plan, head)
    kept = kept_commands(head.pending_writes or ())
    if fork:
        loop.checkpoint_id = loop.ids.next()
    changed = _merge_commands(loop, kept.values())
    if fork:
        kept.clear()
        await _record_opening(loop, "fork", changed)
    if command is not None:
        _keep_command(loop, command, kept)
    loop.approved = approved
    try:
        loop.tasks = prepare(loop.plan, loop.state, None, loop.superstep(resumed=True))
    except MissingNodeError:
        raise
    except Exception as error:  # a schema refuses the state: an end of the run like any other
        loop.failure = error
    if not fork:
        followed.mark(loop.tasks)
        _require_destinations(loop.plan, head.pending_writes or ())
        restore(loop.plan, loop.tasks, head.pending_writes or ())
    loop.put_values()
    for task in with_handlers(loop.tasks):
        if task.writes is not None:
            loop.put_update(task, cached=True)


def _keep_command(loop: Loop, command: Command, kept: Mapping[str, Writes]) -> None:
    """Keep a command and merge what it writes, unless this run has done so before it was killed."""
    task = command_task(loop.plan, command, loop.superstep())
    fence = None if loop.session is None else loop.session.fence
    task_id = command_id(str(uuid6.uuid7()) if fence is None else fence.run_id)
    if task_id in kept or not task.writes:
        return
    if loop.recorder is not None:
        loop.recorder.keep_command(task, task_id, len(kept))
    _merge_commands(loop, [task.writes])


def _merge_commands(loop: Loop, commands: Iterable[Writes]) -> set[str]:
    changed: set[str] = set()
    for writes in commands:
        task, merged = apply_command(loop.state, loop.superstep(), writes, loop.checkpoint_id)
        if loop.recorder is not None:
            loop.recorder.merged(task, merged)
        changed |= merged
    return changed


def restore(plan: Plan, tasks: Sequence[Task], pending: Sequence[PendingWrite]) -> None:
    """Give tasks that have finished before what they wrote; a task that only failed has not.

    In place of one that failed with a handler, the handler goes on, or has finished.
    """
    stored: dict[str, list[tuple[str, Any]]] = {}
    errors: dict[str, str] = {}
    handled: set[str] = set()
    for task_id, channel, value in pending:
        if channel not in RESERVED_SLOTS:
            stored.setdefault(task_id, []).append((channel, value))
        elif channel == ERROR:
            errors[task_id] = value
        elif channel == ERROR_SOURCE:
            handled.add(task_id)
    for task in tasks if stored or handled else ():
        if task.id in handled:
            handler = restore_handler(plan, task, errors.get(task.id, ""))
            if handler is not None:
                task = handler
        if task.id in stored:
            _restore_writes(plan, task, stored[task.id])


def _restore_writes(plan: Plan, task: Task, writes: list[tuple[str, Any]]) -> None:
    task.writes = [write for write in writes if write[0] in plan.channels]
    task.stored = True
    _tell_dropped(plan, task, {name for name, _ in writes} - plan.channels.keys() - {NO_WRITES})


def _tell_dropped(plan: Plan, task: Task, channels: set[str]) -> None:
    for channel in sorted(channels):
        logger.warning(
            "Task %s of node %r wrote to %r, which graph %r no longer has; the write is dropped.",
            task.id,
            task.name,
            channel,
            plan.name,
        )


def _require_destinations(plan: Plan, pending: Sequence[PendingWrite]) -> None:
    """A node that has finished must not lead nowhere because the next one was renamed meanwhile."""
    for _, channel, _ in pending:
        if is_trigger(channel) and channel not in plan.channels:
            raise MissingNodeError(
                f"A node of the thread has finished and goes on to {channel!r}, which graph {plan.name!r} "
                f"does not have: a node or an edge was renamed or removed while the thread waited. {_REMEDY}"
            )


def _require_nodes(plan: Plan, head: CheckpointTuple) -> None:
    """A thread that waits on a node which is gone must not seem to have ended."""
    for name in missing_nodes(plan, head):
        raise MissingNodeError(
            f"The thread waits on node {name!r}, which graph {plan.name!r} does not have. "
            f"Its nodes are: {', '.join(node for node in plan.nodes if node != START)}. {_REMEDY}"
        )


def missing_nodes(plan: Plan, head: CheckpointTuple) -> list[str]:
    """The nodes that a thread waits on and the graph does not have."""
    written = list(head.checkpoint["channel_values"].items())
    for writes in kept_commands(head.pending_writes or ()).values():
        written += writes
    awaited = {_awaited_node(channel, value) for channel, value in written if channel not in plan.channels}
    awaited |= {send.node for channel, sends in written if channel == TASKS for send in sends}
    return sorted(name for name in awaited if name is not None and name not in plan.nodes)


def _awaited_node(channel: str, stored: Any) -> str | None:
    """The node that a stored trigger is about to start, if it is one and does."""
    if channel.startswith(BRANCH):
        return channel.removeprefix(BRANCH)
    if channel.startswith(JOIN) and isinstance(stored, list | dict):
        starts, _, end = channel.removeprefix(JOIN).rpartition(":")
        if set("+".join(arrived(stored)).split("+")) == set(starts.split("+")):
            return end
    return None


def id_of(stored: CheckpointTuple) -> str:
    return stored.checkpoint["id"]
