"""Supersteps and their tasks, as values."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

from perdure.data import NodeError
from perdure.ids import path_text, task_id
from perdure.pregel.plan.plan import NodeSpec
from perdure.pregel.step.namespace import Namespace

Writes = list[tuple[str, Any]]


class Superstep(NamedTuple):
    """The place of tasks in a run.

    Attributes:
        checkpoint_id: the checkpoint that the tasks are prepared from.
        remaining: how many supersteps the recursion limit still allows, this one included.
        resumed: whether some of the tasks may have run before, in a process that is gone.
    """

    checkpoint_id: str
    namespace: Namespace
    step: int
    remaining: int
    resumed: bool = False


class Position(NamedTuple):
    """The checkpoint that a run stands on.

    Attributes:
        source: "input", "loop" or "fork", as the checkpoint's metadata tell.
        step: the number of the superstep that led to it.
    """

    checkpoint_id: str
    source: str
    step: int


class FormerTask(NamedTuple):
    """A task's identity while its thread was stored under other names of nodes."""

    name: str
    path: tuple[str | int, ...]
    triggers: tuple[str, ...]


class _Fields(NamedTuple):
    spec: NodeSpec
    path: tuple[str | int, ...]
    triggers: tuple[str, ...]
    input: Any
    superstep: Superstep
    former: FormerTask | None = None
    handles: NodeError | None = None


class Task(_Fields):
    """One node to be run in one superstep. Tasks are compared by identity.

    A named tuple takes a quarter of the time of a frozen dataclass to make. Without slots of its own, it
    can cache its id.

    Attributes:
        path: its place in the schedule, and the order in which writes are merged.
        input: what the node receives.
        former: the identity that its id and namespace are made of, where the node was renamed since.
        handles: for an error handler, the failure that it handles.
    """

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def name(self) -> str:
        return self.spec.name

    @cached_property
    def id(self) -> str:
        """A digest of checkpoint, namespace, step, node, path and triggers, computed when first asked for."""
        step = self.superstep
        name, path, triggers = self.former or (self.name, self.path, self.triggers)
        return task_id(step.checkpoint_id, step.namespace.text, step.step, name, path_text(path), triggers)

    @cached_property
    def namespace(self) -> Namespace:
        """The place of what runs below this task."""
        name = self.name if self.former is None else self.former.name
        return self.superstep.namespace.child(name, self.id)
