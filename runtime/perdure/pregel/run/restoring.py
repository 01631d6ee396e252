"""The outcomes that an earlier run of a thread has stored, and the nodes on which the thread waits."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from perdure.channels.named_barrier_value import arrived
from perdure.checkpoint.base import CheckpointTuple, PendingWrite
from perdure.constants import (
    BRANCH,
    ERROR,
    ERROR_SOURCE,
    JOIN,
    NO_WRITES,
    RESERVED_SLOTS,
    START,
    TASKS,
    is_trigger,
)
from perdure.errors import MissingNodeError, StoredError
from perdure.pregel.plan.plan import Plan
from perdure.pregel.step.commands import kept_commands
from perdure.pregel.step.outcome import Failed, Finished, Outcome
from perdure.pregel.step.task import Task, Writes
from perdure.pregel.work.handlers import handler_of, handler_task

logger = logging.getLogger("perdure")

_REMEDY: Final = "If a node was renamed, say so: compile(renamed={'<old name>': '<new name>'})."


def restored(plan: Plan, tasks: Sequence[Task], pending: Sequence[PendingWrite]) -> list[Outcome]:
    """Return the stored outcomes of tasks.

    A task that failed without an error handler has none: it runs again. For one whose handler took over, the
    failure is an outcome, so that the handler runs again instead, unless it has an outcome as well.
    """
    stored: dict[str, Writes] = {}
    errors: dict[str, str] = {}
    handled: set[str] = set()
    for task_id, channel, value in pending:
        if channel not in RESERVED_SLOTS:
            stored.setdefault(task_id, []).append((channel, value))
        elif channel == ERROR:
            errors[task_id] = value
        elif channel == ERROR_SOURCE:
            handled.add(task_id)
    outcomes: list[Outcome] = []
    for task in tasks if stored or handled else ():
        spec = handler_of(plan, task) if task.id in handled else None
        if spec is not None:
            error = StoredError(errors.get(task.id, ""))
            handler = handler_task(spec, task, error, task.input)
            outcomes.append(Failed(task, error, handler, restored=True))
            task = handler
        if task.id in stored:
            outcomes.append(_finished(plan, task, stored[task.id]))
    return outcomes


def _finished(plan: Plan, task: Task, writes: Writes) -> Finished:
    known = [write for write in writes if write[0] in plan.channels]
    for channel in sorted({name for name, _ in writes} - plan.channels.keys() - {NO_WRITES}):
        logger.warning(
            "Task %s of node %r wrote to %r, which graph %r no longer has. The write is dropped.",
            task.id,
            task.name,
            channel,
            plan.name,
        )
    return Finished(task, known, len(known), restored=True)


def require_destinations(plan: Plan, pending: Sequence[PendingWrite]) -> None:
    """Refuse a thread on which a finished node leads to a node that was renamed or removed meanwhile."""
    for _, channel, _ in pending:
        if is_trigger(channel) and channel not in plan.channels:
            raise MissingNodeError(
                f"A node of the thread has finished and goes on to {channel!r}, which graph {plan.name!r} "
                f"does not have: a node or an edge was renamed or removed while the thread waited. {_REMEDY}"
            )


def require_nodes(plan: Plan, head: CheckpointTuple) -> None:
    """Refuse a thread that waits on a node which is gone. Otherwise it would seem to have ended."""
    for name in missing_nodes(plan, head):
        raise MissingNodeError(
            f"The thread waits on node {name!r}, which graph {plan.name!r} does not have. "
            f"Its nodes are: {', '.join(node for node in plan.nodes if node != START)}. {_REMEDY}"
        )


def missing_nodes(plan: Plan, head: CheckpointTuple) -> list[str]:
    """Return the nodes on which a thread waits and which the graph does not have."""
    written = list(head.checkpoint["channel_values"].items())
    for writes in kept_commands(head.pending_writes or ()).values():
        written += writes
    awaited = {_awaited_node(channel, value) for channel, value in written if channel not in plan.channels}
    awaited |= {send.node for channel, sends in written if channel == TASKS for send in sends}
    return sorted(name for name in awaited if name is not None and name not in plan.nodes)


def _awaited_node(channel: str, stored: Any) -> str | None:
    """Return the node that a stored channel is about to start; None if the channel starts none."""
    if channel.startswith(BRANCH):
        return channel.removeprefix(BRANCH)
    if channel.startswith(JOIN) and isinstance(stored, list | dict):
        starts, _, end = channel.removeprefix(JOIN).rpartition(":")
        if set("+".join(arrived(stored)).split("+")) == set(starts.split("+")):
            return end
    return None
