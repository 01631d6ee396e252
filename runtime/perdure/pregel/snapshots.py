"""A thread at rest."""

from __future__ import annotations

import logging
import random
from typing import Any

from perdure.channels.base import shallow_copy
from perdure.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from perdure.config import RunSettings
from perdure.constants import ERROR, ROOT, TASKS
from perdure.data import PregelTask, StateSnapshot
from perdure.pregel.lease.session import Superstep
from perdure.pregel.plan.plan import Plan
from perdure.pregel.run.opening import missing_nodes, restore
from perdure.pregel.run.renames import follow
from perdure.pregel.step.apply import apply
from perdure.pregel.step.commands import apply_command, kept_commands
from perdure.pregel.step.prepare import prepare
from perdure.pregel.step.state import ThreadState
from perdure.pregel.step.task import Task
from perdure.pregel.work.handlers import with_handlers
from perdure.pregel.work.scope import Scope

logger = logging.getLogger("perdure")


async def read_snapshot(
    plan: Plan, saver: BaseCheckpointSaver, settings: RunSettings, thread_id: str
) -> StateSnapshot:
    """The addressed checkpoint as people see it.

    Of the newest one, the results of tasks that have finished already count as part of the state;
    of an older one, addressed by its id, they do not.
    """
    address = {
        "thread_id": thread_id,
        "checkpoint_ns": settings.namespace,
        "checkpoint_id": settings.checkpoint_id,
    }
    stored = await saver.aget_tuple({"configurable": address})
    if stored is None:
        given = {key: value for key, value in address.items() if value is not None}
        return StateSnapshot(None if plan.bare else {}, (), {"configurable": given}, None, None, None, ())
    return _snapshot(plan, settings, stored, live=settings.checkpoint_id is None)


def _snapshot(plan: Plan, settings: RunSettings, stored: CheckpointTuple, *, live: bool) -> StateSnapshot:
    followed = follow(plan, stored)
    stored = followed.stored
    state = ThreadState.load(plan, stored.checkpoint)
    step = stored.metadata.get("step", -2) + 1
    scope = Scope(settings=settings, random=random.random)
    superstep = Superstep(
        stored.checkpoint["id"], settings.namespace, step, scope, None, settings.recursion_limit
    )
    sends = stored.checkpoint["channel_values"].get(TASKS, [])
    if sends:
        state.restore(TASKS, [send for send in sends if send.node in plan.nodes])
    pending = stored.pending_writes or []
    for writes in kept_commands(pending).values():
        apply_command(state, superstep, writes, stored.checkpoint["id"])
    tasks = prepare(plan, state, None, superstep, build=False)
    followed.mark(tasks)
    restore(plan, tasks, pending)
    tasks = with_handlers(tasks)
    errors = {task_id: value for task_id, channel, value in pending if channel == ERROR}
    seen = tuple(_task(plan, task, errors.get(task.id)) for task in tasks)
    waiting = [task.name for task in tasks if (_is_waiting(task) if live else task.failure is None)]
    finished = [task for task in tasks if task.writes is not None]
    if live and finished:
        try:
            apply(state, finished, stored.checkpoint["id"])
        except Exception:
            logger.warning(
                "The results of the open superstep of thread %r do not fit together, which stopped its run. "
                "They are not part of the values shown, but of the tasks.",
                settings.thread_id,
                exc_info=True,
            )
    return StateSnapshot(
        values=_values(plan, state),
        next=(*waiting, *missing_nodes(plan, stored)),
        config=stored.config,
        metadata=dict(stored.metadata),
        created_at=stored.checkpoint["ts"],
        parent_config=stored.parent_config,
        tasks=seen,
    )


def _is_waiting(task: Task) -> bool:
    return task.writes is None and task.handler is None


def _values(plan: Plan, state: ThreadState) -> Any:
    keys = ROOT if plan.bare else plan.stream_keys
    if isinstance(keys, str):
        return shallow_copy(state.value(keys, None))
    return state.select(keys or (key for key in plan.channels if key in plan.state_keys))


def _task(plan: Plan, task: Task, error: str | None) -> PregelTask:
    return PregelTask(task.id, task.name, task.path, error=error, result=_result(plan, task))


def _result(plan: Plan, task: Task) -> Any:
    """What a finished task wrote to the state; a key written more than once as `{"$writes": [...]}`."""
    if task.writes is None:
        return None
    written: dict[str, list[Any]] = {}
    for key, value in task.writes:
        if key in plan.state_keys:
            written.setdefault(key, []).append(value)
    result = {key: values[0] if len(values) == 1 else {"$writes": values} for key, values in written.items()}
    return result.get(ROOT) if plan.bare else result
