"""Tasks that run in place of others that have failed, in the same superstep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.constants import ERROR_HANDLER, PUSH
from perdure.data import NodeError
from perdure.errors import StoredError
from perdure.pregel.plan.plan import NodeSpec, Plan
from perdure.pregel.step.task import FormerTask, Task


def handler_of(plan: Plan, task: Task) -> NodeSpec | None:
    """The node that handles errors of this task's; a handler's own are handled by nobody."""
    policies = task.policies
    if policies is None or policies.handler is None or task.failure is not None:
        return None
    return plan.nodes.get(policies.handler)


def hand_over(spec: NodeSpec, failed: Task, error: Exception, given: Any) -> Task:
    """Put a new task for the handler in place of one that failed with `error`."""
    handler = Task(
        spec, (*failed.path, ERROR_HANDLER), (PUSH, ERROR_HANDLER, failed.id), given, failed.superstep
    )
    handler.former = _former(spec, failed, handler)
    handler.failure = NodeError(node=failed.name, error=error)
    failed.error = error
    failed.handler = handler
    failed.superstep.handled = True
    return handler


def _former(spec: NodeSpec, failed: Task, handler: Task) -> FormerTask | None:
    """What a handler was when the node had another name, which its own name ends with."""
    if failed.former is None:
        return None
    name = spec.name
    if name.endswith(failed.name):
        name = name.removesuffix(failed.name) + failed.former.name
    return FormerTask(name, (*failed.former.path, ERROR_HANDLER), handler.triggers)


def restore_handler(plan: Plan, failed: Task, text: str) -> Task | None:
    """The same for a task that had failed in an earlier run; None if the graph has no handler any more."""
    spec = handler_of(plan, failed)
    if spec is None:
        return None
    failed.stored = True
    return hand_over(spec, failed, StoredError(text), failed.input)


def with_handlers(tasks: Sequence[Task]) -> list[Task]:
    """The tasks, and those that run in place of some of them."""
    return [*tasks, *(task.handler for task in tasks if task.handler is not None)]


def acting(tasks: Sequence[Task]) -> list[Task]:
    """The tasks, but in place of those that have failed those that handle it."""
    return [task.handler or task for task in tasks]
