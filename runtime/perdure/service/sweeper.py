"""The sweeper: jobs that a process runs now and then, such as the search for orphans."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable
from functools import partial

import anyio

from perdure.clock import SYSTEM_CLOCK, Clock

logger = logging.getLogger("perdure")

Job = Callable[[], Awaitable[object]]


class Sweeper:
    """A runner of registered jobs, each at its own interval; a process has one.

    Example:
        >>> sweeper = Sweeper()
        >>> # sweeper.register("recovery", partial(recover, graph), every=15.0)
        >>> # async with anyio.create_task_group() as group:
        >>> #     group.start_soon(sweeper.run)

    A job that fails is logged and runs again. A job that takes longer than its interval never runs twice at
    one time.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._jobs: dict[str, tuple[Job, float]] = {}

    def register(self, name: str, job: Job, *, every: float) -> None:
        """Have `job` run about every so many seconds, varied so that processes do not run it in step."""
        if name in self._jobs:
            raise ValueError(f"A job named {name!r} is registered already. Use another name.")
        self._jobs[name] = (job, every)

    async def run(self) -> None:
        """Run the jobs that are registered now, at once and then at intervals, until this is cancelled."""
        async with anyio.create_task_group() as group:
            for name, (job, every) in self._jobs.items():
                group.start_soon(partial(self._repeat, name, job, every))

    async def _repeat(self, name: str, job: Job, every: float) -> None:
        while True:
            try:
                await job()
            except Exception:
                logger.exception("The job %r of the sweeper failed; it runs again in %gs.", name, every)
            await self._clock.sleep(every * random.uniform(0.9, 1.1))
