"""Supersteps and their tasks as values."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple, NoReturn

from perdure.data import NodeError
from perdure.ids import path_text, task_id
from perdure.pregel.plan.plan import NodeSpec
from perdure.pregel.step.namespace import Namespace

Writes = list[tuple[str, Any]]


class Superstep(NamedTuple):
    """The superstep that tasks belong to.

    Attributes:
        checkpoint_id: the checkpoint that the tasks are prepared from.
        remaining: the number of supersteps that the recursion limit still allows, this one included.
        resumed: True if some of the tasks may have run before, in a process that is gone.
    """

    checkpoint_id: str
    namespace: Namespace
    step: int
    remaining: int
    resumed: bool = False


class Position(NamedTuple):
    """The checkpoint that a run stands on.

    Attributes:
        source: "input", "loop" or "fork", as in the checkpoint's metadata.
        step: the number of the superstep that led to it.
    """

    checkpoint_id: str
    source: str
    step: int


class FormerTask(NamedTuple):
    """The identity that a task had when its thread was stored under other names of nodes."""

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
    """One execution of a node in one superstep. Tasks are compared by identity.

    A named tuple is made in a third of the time of a frozen dataclass. This subclass has no slots, so that
    a task can cache its id, which its `__setattr__` does not prevent.

    Attributes:
        path: the place in the schedule, which is also the place in merge order.
        input: the input of the node.
        former: the identity that id and namespace are made of, if the node was renamed since it was stored.
        handles: the failure that the task of an error handler handles.
    """

    __eq__ = object.__eq__
    __ne__ = object.__ne__  # a tuple has one of its own, which would compare values
    __hash__ = object.__hash__

    def __setattr__(self, name: str, _: Any) -> NoReturn:
        """Refuse an attribute. Raises AttributeError."""
        raise AttributeError(
            f"Attribute {name!r} of the task of node {self.name!r} cannot be set. Return what becomes of a "
            "task as an outcome."
        )

    @property
    def name(self) -> str:
        return self.spec.name

    @cached_property
    def id(self) -> str:
        """A digest of checkpoint, namespace, step, node, path and triggers, computed at first use."""
        step = self.superstep
        name, path, triggers = self.former or (self.name, self.path, self.triggers)
        return task_id(step.checkpoint_id, step.namespace.text, step.step, name, path_text(path), triggers)

    @cached_property
    def namespace(self) -> Namespace:
        """The namespace below this task, where its child graphs run."""
        name = self.name if self.former is None else self.former.name
        return self.superstep.namespace.child(name, self.id)
