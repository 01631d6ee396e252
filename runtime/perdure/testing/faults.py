"""Fault scripts: actions at named points of the execution."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from perdure import faults
from perdure.faults import FAULT_POINTS, FaultPoint

Action = Callable[[], Awaitable[None]]


async def kill_process() -> None:
    """Kill this process with SIGKILL: nothing is cleaned up."""
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def fault(point: FaultPoint, action: Action, *, subject: str | None = None, nth: int = 1) -> Iterator[None]:
    """Run `action` once, when `point` is reached for the nth time.

    Args:
        subject: count only times that concern this: a node's name or a thread id.
    """
    if point not in FAULT_POINTS:
        raise ValueError(f"Unknown fault point {point!r}. Known: {', '.join(FAULT_POINTS)}.")
    left = nth

    async def hook(reached: FaultPoint, concerning: str) -> None:
        nonlocal left
        if before is not None:
            await before(reached, concerning)
        if reached == point and subject in (None, concerning):
            left -= 1
            if left == 0:
                await action()

    before, faults.hook = faults.hook, hook
    try:
        yield
    finally:
        faults.hook = before
