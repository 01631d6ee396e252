"""Named fault points: places where tests stop, delay or kill a run.

They cost one global load and a comparison when nothing is installed:

    if faults.hook is not None:
        await faults.reach("commit.send", thread_id)

`perdure.testing.faults` installs the hooks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Literal, get_args

FaultPoint = Literal[
    "claim.send",
    "claim.acknowledged",
    "node.before",
    "node.after",
    "writes.send",
    "writes.acknowledged",
    "commit.send",
    "commit.acknowledged",
]
FAULT_POINTS: Final[tuple[FaultPoint, ...]] = get_args(FaultPoint)

FaultHook = Callable[[FaultPoint, str], Awaitable[None]]
"""Called with the point and what it concerns: the node's name, or else the thread id."""

hook: FaultHook | None = None


async def reach(point: FaultPoint, subject: str) -> None:
    """Tell the installed hook that execution has come to `point`."""
    if hook is not None:
        await hook(point, subject)
