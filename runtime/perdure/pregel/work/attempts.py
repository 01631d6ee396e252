"""The attempts of a node that has policies: each as if it were the first, until one succeeds."""

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
    """Return the outcome of the first attempt that succeeds. Raises what the last one raised.

    Args:
        once: makes one attempt.
        given: makes the node's input anew: an attempt may change the one it gets.
        stopped: whether the run was cancelled, so that nothing new may begin.
    """
    first, number = scope.clock.time_ns() / 1e9, 1
    while True:
        watch = None
        if policies.timeout is not None:
            watch = Watch(task.name, policies.timeout, scope.clock, scope.watch)
        attempt = RunningTask(task._replace(input=given()), scope, Attempt(number, first, watch))
        try:
            finished = await once(attempt)
        except BaseException as raised:
            error = unwrapped(raised)
            if not isinstance(error, Exception) or stopped():
                raise
            delay = delay_before_retry(policies.retry, error, number, scope.random)
            if delay is None:
                if number > 1:
                    add_note(error, f"This was attempt {number} of node {task.name!r}.")
                raise
            logger.info(
                "Node %r failed with %r in attempt %d; next in %.3f s.", task.name, error, number, delay
            )
        else:
            return finished._replace(task=task)
        await scope.clock.sleep(delay)
        number += 1
