"""The context variable that leads code below a node to the node's task."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

current_task: Final[ContextVar[object | None]] = ContextVar("perdure_current_task", default=None)
"""The running task, or None outside of a node."""
