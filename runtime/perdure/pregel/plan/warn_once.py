"""Warnings about a node that are given once, however often their cause recurs."""

from __future__ import annotations

from typing import Final

from perdure.pregel.plan.plan import Plan

MOST: Final = 1_000
"""Warnings that are given in total. Without a bound, names made up by a running program fill its memory."""


class WarnOnce:
    """A memory of the warnings that were given."""

    __slots__ = ("_told",)

    def __init__(self) -> None:
        self._told: set[tuple[str, str, str, str]] = set()

    def is_new(self, plan: Plan, node: str, what: str) -> bool:
        """Return True if `what` was not said of this node before, and remember it."""
        key = (plan.name, plan.signature, node, what)
        if key in self._told or len(self._told) >= MOST:
            return False
        self._told.add(key)
        return True
