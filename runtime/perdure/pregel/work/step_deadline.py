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
    """Run tasks for at most `limit` seconds, then stop them.

    Args:
        ended: the outcomes so far, to which `running` appends.
        running: a coroutine that runs the tasks and returns the cancellation that stopped them, if any.

    Returns:
        The exception that cut the superstep short: the caller's cancellation, or a TimeoutError that names
        the late nodes.
    """
    late: list[str] = []

    def note_late(_: object) -> None:
        # Before the tasks are cancelled: those that end while they are being stopped are late as well.
        late.extend(repr(task.name) for task in still_to_run(tasks, ended))

    async def expired() -> bool:
        await clock.sleep(limit)
        return True

    try:
        end = await race(running, copy_context(), expired(), clock, "A superstep", note_late)
    except CancelledError as error:
        return error  # the caller's, which the race has passed on to the tasks, and has waited for them
    if end.expired is None:
        # `running` is cancelled only by the race, and the race only because the caller was. It returns the
        # exception of its own asyncio task, of which no scope around the caller knows.
        return None if end.result() is None else await own_cancellation()
    if not late:  # all tasks had ended in time; only their group, or a wait for readers, had not
        return None
    timed_out = TimeoutError(
        f"Timed out: a superstep took longer than {limit:g} s (step_timeout) because of {', '.join(late)}. "
        "With a checkpointer, the results of finished tasks are kept: run the thread again to continue."
    )
    raised = [(outcome.task.name, raised_by(outcome)) for outcome in ended]
    attach(timed_out, [(name, each) for name, each in raised if each is not None])
    return timed_out


async def own_cancellation() -> CancelledError:
    """Return the cancellation of this asyncio task after code below has swallowed the exception.

    A cancel scope recognises only the exceptions that it raised itself, by their message. So if a scope
    around this is cancelled, it is made to raise again. A cancellation by Task.cancel is recognised by the
    task's count, so that any CancelledError stands for it.
    """
    try:
        await anyio.lowlevel.checkpoint_if_cancelled()
    except CancelledError as error:
        return error
    return CancelledError()
