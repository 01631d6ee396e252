"""Error handlers: tasks that run in place of failed tasks, in the same superstep."""

from __future__ import annotations

from typing import Any

from perdure.constants import ERROR_HANDLER, PUSH
from perdure.data import NodeError
from perdure.pregel.plan.plan import NodeSpec, Plan
from perdure.pregel.step.task import FormerTask, Task


def handler_of(plan: Plan, task: Task) -> NodeSpec | None:
    """Return the node that handles a task's errors; None if there is none, or the task is a handler's."""
    policies = task.spec.policies
    if policies is None or policies.handler is None or task.handles is not None:
        return None
    return plan.nodes.get(policies.handler)


def handler_task(spec: NodeSpec, failed: Task, error: BaseException, given: Any) -> Task:
    """Return the task of an error handler that runs in place of `failed`."""
    path, triggers = (*failed.path, ERROR_HANDLER), (PUSH, ERROR_HANDLER, failed.id)
    former = None if failed.former is None else _former(spec.name, failed.name, failed.former, triggers)
    return Task(
        spec, path, triggers, given, failed.superstep, former, NodeError(node=failed.name, error=error)
    )


def _former(name: str, failed: str, former: FormerTask, triggers: tuple[str, ...]) -> FormerTask:
    """Return the identity that a handler had before the failed node, and the handler with it, was renamed."""
    if name.endswith(failed):
        name = name.removesuffix(failed) + former.name
    return FormerTask(name, (*former.path, ERROR_HANDLER), triggers)
