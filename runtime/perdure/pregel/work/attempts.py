"""The attempts of a node that has policies: each begins like the first, until one succeeds."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from perdure.pregel.plan.plan import Policies
from perdure.pregel.plan.retry import delay_before_retry
from perdure.pregel.step.failures import add_note, unwrapped
from perdure.pregel.step.outcome import Finished
from perdure.pregel.step.task import Task
from perdure.pregel.work.running import Attempt, RunningTask, Scope
from perdure.pregel.work.time_limits import Watch

logger = logging.getLogger("perdure")


async def attempted(
    task: Task,
    scope: Scope,
    policies: Policies,
    once: Callable[[RunningTask], Awaitable[Finished]],
    given: Callable[[], Any],
    stopped: Callable[[], bool],
) -> Finished:
    """Return the outcome of the first attempt that succeeds, or raise the error of the last one.

    Args:
        once: a function that makes one attempt.
        given: a function that makes the node's input anew, because an attempt may change its input.
        stopped: a function that returns True once this asyncio task was cancelled.
    """
    first, number = scope.clock.time_ns() / 1e9, 1
    while True:  # ends at the latest when `delay_before_retry` grants no further attempt
        watch = None
        if policies.timeout is not None:
            watch = Watch(task.name, policies.timeout, scope.clock, scope.watch)
        attempt = RunningTask(task._replace(input=given()), scope, Attempt(number, first, watch))
        try:
            finished = await once(attempt)
        except BaseException as raised:
            error = unwrapped(raised)
            # Signals, cancellation and what ends programs are not retried. Neither is an error that comes
            # after a cancellation, as when the node's clean-up fails: a retry would outlive the run.
            if not isinstance(error, Exception) or stopped():
                raise
            delay = delay_before_retry(policies.retry, error, number, scope.random)
            if delay is None:
                if number > 1:
                    add_note(error, f"This was attempt {number} of node {task.name!r}.")
                raise
            logger.info(
                "Node %r failed with %r in attempt %d. The next attempt begins in %.3f s.",
                task.name,
                error,
                number,
                delay,
            )
        else:
            # The superstep knows the task by identity; the attempt had a copy of it with a new input.
            return finished._replace(task=task)
        await scope.clock.sleep(delay)  # no attempt runs now, so a cancellation simply ends the task here
        number += 1
