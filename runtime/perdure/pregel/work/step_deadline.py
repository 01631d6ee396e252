"""How long a superstep may take."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from contextvars import copy_context
from typing import Any

from perdure.aio.cancellation import race
from perdure.clock import Clock
from perdure.pregel.step.failures import attach
from perdure.pregel.step.task import Task
from perdure.pregel.work.handlers import acting


async def within(
    limit: float, clock: Clock, tasks: Sequence[Task], running: Coroutine[Any, Any, list[Task]]
) -> list[Task]:
    """Run tasks, as `run_tasks` does, for so many seconds; then stop them and raise TimeoutError."""
    late: list[str] = []

    def up(_: object) -> None:
        late.extend(repr(task.name) for task in acting(tasks) if task.writes is None and task.error is None)

    async def expired() -> bool:
        await clock.sleep(limit)
        return True

    end = await race(running, copy_context(), expired(), clock, "A superstep", up)
    if end.expired is None or end.value is not None:
        return end.result()
    if not late:  # the tasks had ended, and only what waits for them had not heard of it
        return [task for task in acting(tasks) if task.error is not None]
    error = TimeoutError(
        f"Timed out: a superstep may take {limit:g} s (step_timeout), and did not end because of "
        f"{', '.join(late)}. What had finished is kept: run the thread again to go on from there."
    )
    attach(error, [(task.name, task.error) for task in acting(tasks) if task.error is not None])
    raise error
