"""The time limit of a superstep."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from contextvars import copy_context
from typing import Any

import anyio.lowlevel

from perdure.aio.cancellation import CancelledError
from perdure.aio.racing import race
from perdure.clock import Clock
from perdure.pregel.step.failures import attach
from perdure.pregel.step.outcome import Outcome, raised_by, still_to_run
from perdure.pregel.step.task import Task


async def within(
    limit: float,
    clock: Clock,
    tasks: Sequence[Task],
    ended: Sequence[Outcome],
    running: Coroutine[Any, Any, BaseException | None],
) -> BaseException | None:
    """Run tasks for so many seconds, then stop them.

    Args:
        ended: the outcomes so far, which `running` adds to.
        running: runs the tasks and returns the cancellation that came meanwhile.

    Returns what cut the superstep short: that cancellation, or a TimeoutError that names the late nodes.
    """
    late: list[str] = []

    def up(_: object) -> None:
        late.extend(repr(task.name) for task in still_to_run(tasks, ended))

    async def expired() -> bool:
        await clock.sleep(limit)
        return True

    try:
        end = await race(running, copy_context(), expired(), clock, "A superstep", up)
    except CancelledError as error:
        return error
    if end.expired is None:
        return None if end.result() is None else await own_cancellation()
    if not late:  # the tasks had ended, and only what waits for them had not heard of it
        return None
    timed_out = TimeoutError(
        f"Timed out: a superstep may take {limit:g} s (step_timeout), and did not end because of "
        f"{', '.join(late)}. What had finished is kept: run the thread again to go on from there."
    )
    raised = [(outcome.task.name, raised_by(outcome)) for outcome in ended]
    attach(timed_out, [(name, each) for name, each in raised if each is not None])
    return timed_out


async def own_cancellation() -> CancelledError:
    """Return the cancellation of this asyncio task, which something below it has seen already.

    A cancel scope recognises only its own exception, so it is asked for one.
    """
    try:
        await anyio.lowlevel.checkpoint_if_cancelled()
    except CancelledError as error:
        return error
    return CancelledError()
