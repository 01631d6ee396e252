"""Named fault points, at which tests stop, delay or kill a run.

Without a hook, a fault point costs one global load and one comparison:

    if faults.hook is not None:
        await faults.reach("commit.send", thread_id)

`perdure.testing.faults` installs hooks.
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
"""A callback for fault points. Its second argument is the node's name or, without a node, the thread id."""

hook: FaultHook | None = None


async def reach(point: FaultPoint, subject: str) -> None:
    """Call the hook, if there is one, for this fault point."""
    if hook is not None:
        await hook(point, subject)
