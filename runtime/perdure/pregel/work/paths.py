"""Paths: the functions of conditional edges, which choose the next nodes once a node has written."""

from __future__ import annotations

from inspect import isawaitable
from typing import Any

from perdure.channels.base import shallow_copy
from perdure.pregel.plan.plan import Branch, Plan
from perdure.pregel.step.read import read
from perdure.pregel.step.routing import follow_branch, targets
from perdure.pregel.step.state import Preview, ThreadState
from perdure.pregel.step.task import Writes
from perdure.pregel.work.injection import injected
from perdure.pregel.work.running import RunningTask


async def follow_paths(
    plan: Plan, state: ThreadState, task: RunningTask, writes: Writes, result: Any
) -> Preview:
    """Follow a task's conditional edges, and append their writes to the task's own.

    Paths see the state as it would be after the task's own writes, but not those of other tasks.

    Args:
        writes: the task's own writes, which this extends.
        result: the value that the task's action returned.

    Returns:
        The state keys after the task's own writes.
    """
    preview = state.preview(writes)
    spec = task.task.spec
    for branch in spec.branches:
        chosen = await _chosen(plan, state, task, branch, preview, result)
        for target in targets(chosen):
            writes.extend(follow_branch(plan, spec.name, branch, target))
    return preview


async def _chosen(
    plan: Plan, state: ThreadState, task: RunningTask, branch: Branch, preview: Preview, result: Any
) -> Any:
    """Return the choice of one path."""
    given = read(branch.reader, state, task.task.superstep, preview.values)
    if branch.sees_result and isinstance(result, dict):
        for key in result:
            if key not in plan.state_keys:
                given[key] = shallow_copy(result[key])
    chosen = branch.path(given, **injected(task, branch.injects)) if branch.injects else branch.path(given)
    return await chosen if isawaitable(chosen) else chosen
