"""What is told of a node once, however often it happens."""

from __future__ import annotations

from typing import Final

from perdure.pregel.plan.plan import Plan
from perdure.pregel.step.task import Task

MOST: Final = 1_000
"""How much is told in all: what names are made up while a program runs must not fill its memory."""


class Once:
    """Remembers what was told."""

    __slots__ = ("_told",)

    def __init__(self) -> None:
        self._told: set[tuple[str, str, str, str]] = set()

    def is_new(self, plan: Plan, task: Task, what: str) -> bool:
        """Whether `what` was not told yet of the task's node; from now on it was."""
        key = (plan.name, plan.signature, task.name, what)
        if key in self._told or len(self._told) >= MOST:
            return False
        self._told.add(key)
        return True
