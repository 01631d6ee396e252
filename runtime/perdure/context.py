"""What code below a node can find out about where it runs: one ContextVar, one object per task."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

current_task: Final[ContextVar[object | None]] = ContextVar("perdure_current_task", default=None)
"""The engine's Task whose node is running, or None outside of a node."""
