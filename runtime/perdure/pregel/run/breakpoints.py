"""Breakpoints: the nodes before or after which a run stops on purpose."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from perdure.constants import START
from perdure.pregel.plan.names import EVERY_NODE, names_of
from perdure.pregel.step.task import Task


@dataclass(frozen=True, slots=True)
class Breakpoints:
    """The nodes before which and after which a run stops."""

    before: frozenset[str]
    after: frozenset[str]

    def stop_before(self, tasks: Iterable[Task], approved: bool) -> bool:
        """Return True to stop before these tasks, unless they are approved: then the run passes them now."""
        return not approved and _meets(self.before, tasks)

    def stop_after(self, tasks: Iterable[Task]) -> bool:
        """Return True to stop after these tasks."""
        return _meets(self.after, tasks)


def breakpoints(before: Sequence[str], after: Sequence[str]) -> Breakpoints | None:
    """Return breakpoints at the named nodes, "*" for every node; None if none is named."""
    return Breakpoints(frozenset(names_of(before)), frozenset(names_of(after))) if before or after else None


def _meets(names: frozenset[str], tasks: Iterable[Task]) -> bool:
    if EVERY_NODE in names:
        return any(task.name != START for task in tasks)
    return any(task.name in names for task in tasks)
