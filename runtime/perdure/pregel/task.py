"""One node to be run in one superstep."""

from __future__ import annotations

from typing import Any

from perdure.constants import NAMESPACE_END, NAMESPACE_SEPARATOR
from perdure.ids import path_text, task_id
from perdure.pregel.plan import NodeSpec
from perdure.pregel.session import Superstep
from perdure.pregel.state import Preview

Writes = list[tuple[str, Any]]


class Task:
    """A task: what runs, on which input, and what came of it.

    Attributes:
        path: its place in the schedule, and the order in which writes are merged.
        writes: what it wrote, once it has finished; None before.
        stored: whether `writes` came from the saver, or were handed to it already.
        error: what its node raised.
        preview: the state as this task's own writes leave it, where a router asked for it.
        children: how many child graphs the node has invoked.
    """

    __slots__ = (
        "_id",
        "children",
        "error",
        "input",
        "path",
        "preview",
        "spec",
        "stored",
        "superstep",
        "triggers",
        "writes",
    )

    def __init__(
        self,
        spec: NodeSpec,
        path: tuple[str, str | int],
        triggers: tuple[str, ...],
        input: Any,
        superstep: Superstep,
    ) -> None:
        self.spec = spec
        self.path = path
        self.triggers = triggers
        self.input = input
        self.superstep = superstep
        self.writes: Writes | None = None
        self.stored = False
        self.error: BaseException | None = None
        self.preview: Preview | None = None
        self.children = 0
        self._id: str | None = None

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def id(self) -> str:
        """A function of checkpoint, namespace, step, node, path and triggers; made when first asked for."""
        if self._id is None:
            step = self.superstep
            self._id = task_id(
                step.checkpoint_id, step.namespace, step.step, self.name, path_text(self.path), self.triggers
            )
        return self._id

    def child_namespace(self) -> str:
        """The namespace of the next child graph that this task's node invokes."""
        parent = self.superstep.namespace
        own = f"{self.name}{NAMESPACE_END}{self.id}"
        namespace = f"{parent}{NAMESPACE_SEPARATOR}{own}" if parent else own
        ordinal, self.children = self.children, self.children + 1
        return f"{namespace}{NAMESPACE_SEPARATOR}{ordinal}" if ordinal else namespace
