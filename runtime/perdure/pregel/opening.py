"""From a checkpoint and an input to the first superstep."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from perdure.channels.named_barrier_value import arrived
from perdure.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, Orphan, PendingWrite
from perdure.clock import Clock, IdSource
from perdure.config import RunSettings
from perdure.constants import INPUT, NO_WRITES, PULL, RESERVED_SLOTS, START, TASKS, is_trigger
from perdure.data import Durability
from perdure.errors import MissingNodeError
from perdure.pregel.apply import apply
from perdure.pregel.commit import Recorder
from perdure.pregel.loop import Loop
from perdure.pregel.plan import Calling, NodeSpec, Plan
from perdure.pregel.prepare import fired_anywhere, prepare
from perdure.pregel.scope import Scope
from perdure.pregel.session import Session
from perdure.pregel.state import ThreadState
from perdure.pregel.stream import Events
from perdure.pregel.task import Task

logger = logging.getLogger("perdure")

_INPUT_SPEC: Final = NodeSpec(name=INPUT, action=lambda given: given, calling=Calling.INPUT, triggers=())


@dataclass(slots=True, kw_only=True)
class RunRequest:
    """A run as asked for.

    Attributes:
        input: None continues what is stored.
        saver: None stores nothing, unless a surrounding run does; False stores nothing at all.
        orphan: given when this run continues one whose process is gone.
    """

    plan: Plan
    input: Any
    scope: Scope
    saver: BaseCheckpointSaver | bool | None
    durability: Durability
    output_keys: str | Sequence[str]
    events: Events | None = None
    orphan: Orphan | None = None

    @property
    def settings(self) -> RunSettings:
        return self.scope.settings

    @property
    def clock(self) -> Clock:
        return self.scope.clock

    def with_settings(self, settings: RunSettings) -> RunRequest:
        """The same run, differently configured."""
        return replace(self, scope=replace(self.scope, settings=settings))


def stored_loop(
    request: RunRequest,
    session: Session,
    head: CheckpointTuple | None,
    parent: Task | None = None,
    namespace: str = "",
) -> Loop:
    plan = request.plan
    state = ThreadState(plan) if head is None else ThreadState.load(plan, head.checkpoint)
    metadata = dict(request.settings.metadata)
    if session.fence is not None:
        metadata["run_id"] = session.fence.run_id
    metadata["parents"] = {}
    if parent is not None:
        metadata["parents"] = {parent.superstep.namespace: parent.superstep.checkpoint_id}
    recorder = Recorder(plan, state, session, namespace, head, metadata)
    loop = new_loop(request, state, session.ids, session, recorder, namespace, root=parent is None)
    if head is not None:
        loop.checkpoint_id = id_of(head)
        loop.source, loop.step = head.metadata.get("source", "loop"), head.metadata.get("step", -2)
    return loop


def new_loop(
    request: RunRequest,
    state: ThreadState,
    ids: IdSource,
    session: Session | None = None,
    recorder: Recorder | None = None,
    namespace: str = "",
    *,
    root: bool = True,
) -> Loop:
    return Loop(
        request.plan,
        state,
        request.scope,
        ids,
        session=session,
        recorder=recorder,
        namespace=namespace,
        root=root,
        output_keys=request.output_keys,
        events=request.events,
    )


async def start(loop: Loop, given: Mapping[str, Any]) -> None:
    """Write an input; what the thread still had to do is dropped."""
    superstep = loop.superstep()
    versions = loop.state.versions
    for foreign in [name for name in versions if is_trigger(name) and name not in loop.plan.channels]:
        del versions[foreign]
    for deferred in loop.plan.deferred & loop.plan.triggered.keys():
        loop.state.finish(deferred)  # so that what it waited with is dropped like the rest
    dropped = [
        Task(loop.plan.nodes[name], (PULL, name), tuple(triggers), None, superstep)
        for name, triggers in fired_anywhere(loop.plan, loop.state).items()
    ]
    written = Task(_INPUT_SPEC, (PULL, INPUT), (), None, superstep)
    written.writes = [(START, given)] if START in loop.plan.nodes else list(given.items())
    loop.checkpoint_id = loop.ids.next()
    applied = apply(loop.state, [*dropped, written], loop.checkpoint_id)
    await _record_opening(loop, "input", applied.changed)
    loop.put_values(applied.changed)
    loop.tasks = prepare(loop.plan, loop.state, applied.updated, loop.superstep())


async def _record_opening(loop: Loop, source: str, changed: set[str]) -> None:
    loop.source, loop.step = source, loop.step + 1
    if loop.recorder is not None:
        await loop.recorder.superstep_finished(
            (), changed, loop.checkpoint_id, source=source, step=loop.step, rides=True
        )


async def resume(loop: Loop, head: CheckpointTuple, *, fork: bool) -> None:
    """Prepare what the thread still has to do, with what of it is stored already.

    A fork continues from below the head, on a checkpoint of its own, and inherits no results.
    """
    _require_nodes(loop.plan, head)
    if fork:
        loop.checkpoint_id = loop.ids.next()
        await _record_opening(loop, "fork", set())
    loop.tasks = prepare(loop.plan, loop.state, None, loop.superstep(resumed=True))
    if not fork:
        _require_destinations(loop.plan, head.pending_writes or ())
        restore(loop.plan, loop.tasks, head.pending_writes or ())
    loop.put_values()
    for task in loop.tasks:
        if task.writes is not None and loop.events is not None and loop.events.updates:
            loop.put_update(task, __metadata__={"cached": True})


def restore(plan: Plan, tasks: Sequence[Task], pending: Sequence[PendingWrite]) -> None:
    """Give tasks that have finished before what they wrote; a task that only failed has not."""
    stored: dict[str, list[tuple[str, Any]]] = {}
    for task_id, channel, value in pending:
        if channel not in RESERVED_SLOTS:
            stored.setdefault(task_id, []).append((channel, value))
    for task in tasks if stored else ():
        writes = stored.get(task.id)
        if writes is not None:
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
                "does not have: a node or an edge was renamed or removed while the thread waited."
            )


def _require_nodes(plan: Plan, head: CheckpointTuple) -> None:
    """A thread that waits on a node which is gone must not seem to have ended."""
    for name in missing_nodes(plan, head):
        raise MissingNodeError(
            f"The thread waits on node {name!r}, which graph {plan.name!r} does not have. "
            f"Its nodes are: {', '.join(node for node in plan.nodes if node != START)}."
        )


def missing_nodes(plan: Plan, head: CheckpointTuple) -> list[str]:
    """The nodes that a thread waits on and the graph does not have."""
    stored = head.checkpoint["channel_values"]
    awaited = {_awaited_node(channel, stored[channel]) for channel in stored.keys() - plan.channels.keys()}
    awaited |= {send.node for send in stored.get(TASKS, ())}
    return sorted(name for name in awaited if name is not None and name not in plan.nodes)


def _awaited_node(channel: str, stored: Any) -> str | None:
    """The node that a stored trigger is about to start, if it is one and does."""
    if channel.startswith("branch:to:"):
        return channel.removeprefix("branch:to:")
    if channel.startswith("join:") and isinstance(stored, list | dict):
        starts, _, end = channel.removeprefix("join:").rpartition(":")
        if set("+".join(arrived(stored)).split("+")) == set(starts.split("+")):
            return end
    return None


def id_of(stored: CheckpointTuple) -> str:
    return stored.checkpoint["id"]
