"""State snapshots: threads at rest, as users see them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from perdure.channels.base import shallow_copy
from perdure.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from perdure.config import RunSettings
from perdure.constants import ERROR, ROOT, TASKS
from perdure.data import PregelTask, StateSnapshot
from perdure.pregel.plan.plan import Plan
from perdure.pregel.run.renames import follow
from perdure.pregel.run.restoring import missing_nodes, restored
from perdure.pregel.step.apply import apply
from perdure.pregel.step.commands import apply_command, kept_commands
from perdure.pregel.step.namespace import Namespace
from perdure.pregel.step.outcome import Failed, Finished, Outcome
from perdure.pregel.step.prepare import prepare
from perdure.pregel.step.state import ThreadState
from perdure.pregel.step.task import Superstep

logger = logging.getLogger("perdure")


async def read_snapshot(
    plan: Plan, saver: BaseCheckpointSaver, settings: RunSettings, thread_id: str
) -> StateSnapshot:
    """Return the state snapshot of the newest checkpoint, or of the one that the settings name by its id.

    The newest one includes the results of tasks that have finished since. One that is named by its id shows
    the state at that time.
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
    """Return the state snapshot of a checkpoint; with `live`, results beside it are part of the values."""
    followed = follow(plan, stored)
    stored = followed.stored
    state = ThreadState.load(plan, stored.checkpoint)
    step = stored.metadata.get("step", -2) + 1
    superstep = Superstep(
        stored.checkpoint["id"], Namespace(settings.namespace), step, settings.recursion_limit
    )
    sends = stored.checkpoint["channel_values"].get(TASKS, [])
    if sends:
        state.restore(TASKS, [send for send in sends if send.node in plan.nodes])
    pending = stored.pending_writes or []
    for writes in kept_commands(pending).values():
        apply_command(state, superstep, writes, stored.checkpoint["id"])
    tasks = followed.marked(prepare(plan, state, None, superstep, build=False))
    outcomes = {outcome.task: outcome for outcome in restored(plan, tasks, pending)}
    handlers = [
        outcome.handler
        for outcome in outcomes.values()
        if isinstance(outcome, Failed) and outcome.handler is not None
    ]
    waiting = [task for task in (*tasks, *handlers) if task not in outcomes] if live else tasks
    errors = {task_id: value for task_id, channel, value in pending if channel == ERROR}
    seen = [
        PregelTask(
            task.id,
            task.name,
            task.path,
            error=errors.get(task.id),
            result=_result(plan, outcomes.get(task)),
        )
        for task in (*tasks, *handlers)
    ]
    if live:
        _merge_open_superstep(state, list(outcomes.values()), stored.checkpoint["id"], settings.thread_id)
    return StateSnapshot(
        values=_values(plan, state),
        next=(*(task.name for task in waiting), *missing_nodes(plan, stored)),
        config=stored.config,
        metadata=dict(stored.metadata),
        created_at=stored.checkpoint["ts"],
        parent_config=stored.parent_config,
        tasks=tuple(seen),
    )


def _merge_open_superstep(
    state: ThreadState, outcomes: Sequence[Outcome], checkpoint_id: str, thread_id: str | None
) -> None:
    """Merge the results of finished tasks into the state, as the superstep will do when it ends."""
    finished = [outcome for outcome in outcomes if isinstance(outcome, Finished)]
    if not finished:
        return
    try:
        apply(state, finished, checkpoint_id)
    except Exception:
        logger.warning(
            "The results of the open superstep of thread %r do not fit together, which stopped its run. "
            "The snapshot shows them in its tasks, not in its values.",
            thread_id,
            exc_info=True,
        )


def _values(plan: Plan, state: ThreadState) -> Any:
    keys = ROOT if plan.bare else plan.stream_keys
    if isinstance(keys, str):
        return shallow_copy(state.value(keys, None))
    return state.select(keys or (key for key in plan.channels if key in plan.state_keys))


def _result(plan: Plan, outcome: Outcome | None) -> Any:
    """Return a finished task's writes to the state. Several values of a key become `{"$writes": [...]}`."""
    if not isinstance(outcome, Finished):
        return None
    written: dict[str, list[Any]] = {}
    for key, value in outcome.writes:
        if key in plan.state_keys:
            written.setdefault(key, []).append(value)
    result = {key: values[0] if len(values) == 1 else {"$writes": values} for key, values in written.items()}
    return result.get(ROOT) if plan.bare else result
