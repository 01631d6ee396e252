"""One node to be run in one superstep."""

from __future__ import annotations

from typing import Any

from perdure.config import RunnableConfig
from perdure.constants import NAMESPACE_END, NAMESPACE_SEPARATOR
from perdure.context import current_task
from perdure.data import NodeError
from perdure.ids import path_text, task_id
from perdure.pregel.plan import NodeSpec
from perdure.pregel.session import Superstep
from perdure.pregel.state import Preview
from perdure.runtime import ExecutionInfo, Runtime

Writes = list[tuple[str, Any]]


class Task:
    """A task: what runs, on which input, and what came of it.

    Attributes:
        path: its place in the schedule, and the order in which writes are merged.
        writes: what it wrote, once it has finished; None before.
        stored: whether `writes` came from the saver, or were handed to it already.
        error: what its node raised.
        failure: for an error handler, what it handles.
        preview: the state as this task's own writes leave it, where a router asked for it.
        children: how many child graphs the node has invoked.
    """

    __slots__ = (
        "_id",
        "children",
        "error",
        "failure",
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
        path: tuple[str | int, ...],
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
        self.failure: NodeError | None = None
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

    @property
    def namespace(self) -> str:
        """The namespace of what runs below this task."""
        parent = self.superstep.namespace
        own = f"{self.name}{NAMESPACE_END}{self.id}"
        return f"{parent}{NAMESPACE_SEPARATOR}{own}" if parent else own

    def child_namespace(self) -> str:
        """The namespace of the next child graph that this task's node invokes."""
        namespace = self.namespace
        ordinal, self.children = self.children, self.children + 1
        return f"{namespace}{NAMESPACE_SEPARATOR}{ordinal}" if ordinal else namespace

    def runtime(self) -> Runtime[Any]:
        """What the node can find out about its run."""
        scope = self.superstep.scope
        return Runtime(
            context=scope.context,
            store=scope.store,
            stream_writer=scope.writer,
            execution_info=ExecutionInfo(
                checkpoint_id=self.superstep.checkpoint_id,
                checkpoint_ns=self.namespace,
                task_id=self.id,
                thread_id=scope.settings.thread_id,
                run_id=scope.settings.run_id,
            ),
        )

    def config(self) -> RunnableConfig:
        """The node's view of its run's config."""
        step, settings = self.superstep, self.superstep.scope.settings
        config = RunnableConfig(
            configurable={**settings.configurable, "checkpoint_ns": self.namespace},
            recursion_limit=settings.recursion_limit,
            max_concurrency=settings.max_concurrency,
            tags=list(dict.fromkeys((*settings.tags, *self.spec.tags))),
            metadata={
                **settings.metadata,
                "langgraph_step": step.step,
                "langgraph_node": self.name,
                "langgraph_triggers": self.triggers,
                "langgraph_path": self.path,
                "langgraph_checkpoint_ns": self.namespace,
                **self.spec.metadata,
            },
            run_name=self.name,
        )
        if settings.run_id is not None:
            config["run_id"] = settings.run_id
        return config


def running_task() -> Task | None:
    """The task whose node is running here, if any."""
    task = current_task.get()
    return task if isinstance(task, Task) else None
