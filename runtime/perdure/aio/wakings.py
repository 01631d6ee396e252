"""The mark that a failed `asyncio.TaskGroup` leaves on its task, before Python 3.13.

When a child fails while the group waits for its children, the group cancels its own task to wake it.
Python 3.13 takes that cancellation back. Before, the task looks cancelled for ever after: a node that
catches the group's error and returns would seem to belong to a run that somebody has cancelled.

So each CancelledError on its way into a node is looked at. If the node is suspended in the end of a group
that has asked for it, the group is noted, and its cancellation is taken back when the node has ended.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, Final

TAKEN_BACK_SINCE: Final = (3, 13)
"""The first version of Python whose groups take their cancellation back. None older: this file can go."""

GROUPS_TAKE_BACK: Final = sys.version_info >= TAKEN_BACK_SINCE

Wakings = list[asyncio.TaskGroup]
"""Groups that have cancelled their own task to wake it, each once."""


def note_waking(wakings: Wakings, coroutine: Coroutine[Any, Any, Any], thrown: BaseException) -> None:
    """Add to `wakings` the group that caused `thrown`, an error about to be thrown into `coroutine`."""
    if GROUPS_TAKE_BACK or not isinstance(thrown, asyncio.CancelledError):
        return
    group = _waking(coroutine)
    # A group cancels its task once. Another CancelledError that finds it still waiting is somebody else's.
    if group is not None and all(group is not known for known in wakings):
        wakings.append(group)


def take_back(wakings: Wakings) -> None:
    """Take back the cancellations of the groups in `wakings`, in the task that they have woken."""
    while wakings:
        wakings.pop()
        current = asyncio.current_task()
        if current is not None:
            current.uncancel()


def _waking(coroutine: Any) -> asyncio.TaskGroup | None:
    """Return the group in whose end `coroutine` is suspended, if it has cancelled its own task."""
    while coroutine is not None:
        # A suspended coroutine has a frame: where it stands in its own code.
        frame = getattr(coroutine, "cr_frame", None)
        # The end of a group is its __aexit__, which no other code is and nothing can be called in the
        # place of. Its `self` is the group.
        if frame is not None and frame.f_code is asyncio.TaskGroup.__aexit__.__code__:
            group: asyncio.TaskGroup = frame.f_locals["self"]
            # Set when the group cancels its task. Not set, the cancellation is somebody else's.
            return group if group._parent_cancel_requested else None  # type: ignore[attr-defined]
        # Else one step in, to what it awaits. A future, or a generator as in `in_context`, awaits no
        # further coroutine: there the walk ends.
        coroutine = getattr(coroutine, "cr_await", None)
    return None
