"""Injection: the values that an action receives beside its input."""

from __future__ import annotations

from typing import Any

from perdure.pregel.plan.plan import Injected
from perdure.pregel.work.running import RunningTask


def injected(task: RunningTask, wanted: tuple[tuple[str, Injected], ...]) -> dict[str, Any]:
    """Return the values for the parameters by which an action asks for them."""
    return {parameter: _value(task, what) for parameter, what in wanted}


def _value(task: RunningTask, what: Injected) -> Any:
    match what:
        case "config":
            return task.config()
        case "runtime":
            return task.runtime()
        case "writer":
            return task.stream_writer()
        case "store":
            return task.scope.store
        case "previous":
            return task.runtime().previous
        case "error":
            return task.task.handles
