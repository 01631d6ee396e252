"""One node to be run in one superstep."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple

from perdure.config import RunnableConfig, RunSettings, task_metadata
from perdure.constants import NAMESPACE_END, NAMESPACE_SEPARATOR
from perdure.context import current_task
from perdure.data import NodeError
from perdure.ids import path_text, task_id
from perdure.pregel.lease.session import Superstep
from perdure.pregel.plan.plan import NodeSpec, Policies
from perdure.pregel.step.state import Preview
from perdure.pregel.work.time_limits import Watch
from perdure.runtime import ExecutionInfo, Runtime, ServerInfo

Writes = list[tuple[str, Any]]


class FormerTask(NamedTuple):
    """What a task was when its thread was stored under other names of nodes."""

    name: str
    path: tuple[str | int, ...]
    triggers: tuple[str, ...]


class Attempt(NamedTuple):
    """Which attempt of a node with policies this is.

    Attributes:
        first_time: when the first one began, in seconds since the epoch.
        watch: None for a node without a time limit.
    """

    number: int
    first_time: float
    watch: Watch | None


class Task:
    """A task: what runs, on which input, and what came of it.

    Attributes:
        path: its place in the schedule, and the order in which writes are merged.
        writes: what it wrote, once it has finished; None before.
        stored: whether `writes` came from the saver, or were handed to it already.
        error: what its node raised.
        policies: how its node is run; None if it is simply called.
        attempt: which attempt this stands for, if its node has policies.
        handler: the task that runs in this one's place, if this one has failed and its node has one.
        failure: for an error handler, what it handles.
        preview: the state as this task's own writes leave it, where a router asked for it.
        former: what its id and namespace are made of, where that is not what it is called now.
        routed: how many writes it had before its conditional edges were followed; None if it has none.
        children: how many child graphs the node has invoked.
    """

    __slots__ = (
        "_id",
        "attempt",
        "children",
        "error",
        "failure",
        "former",
        "handler",
        "input",
        "path",
        "policies",
        "preview",
        "routed",
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
        self.policies: Policies | None = spec.policies
        self.attempt: Attempt | None = None
        self.handler: Task | None = None
        self.failure: NodeError | None = None
        self.preview: Preview | None = None
        self.former: FormerTask | None = None
        self.routed: int | None = None
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
            name, path, triggers = self.former or (self.name, self.path, self.triggers)
            self._id = task_id(step.checkpoint_id, step.namespace, step.step, name, path_text(path), triggers)
        return self._id

    def for_attempt(self, attempt: Attempt, given: Any) -> Task:
        """A task that stands for this one in one attempt: what it counts and shows is that attempt's own."""
        task = copy(self)
        task.attempt = attempt
        task.input = given
        return task

    @property
    def again(self) -> bool:
        """Whether the node may have run before, so that there may be something of graphs that it invoked."""
        return self.superstep.resumed or (self.attempt is not None and self.attempt.number > 1)

    @property
    def watch(self) -> Watch | None:
        """What is to be told of the progress that this task makes."""
        if self.attempt is not None and self.attempt.watch is not None:
            return self.attempt.watch
        return self.superstep.scope.watch

    @property
    def namespace(self) -> str:
        """The namespace of what runs below this task."""
        parent = self.superstep.namespace
        name = self.name if self.former is None else self.former.name
        own = f"{name}{NAMESPACE_END}{self.id}"
        return f"{parent}{NAMESPACE_SEPARATOR}{own}" if parent else own

    def child_namespace(self) -> str:
        """The namespace of the next child graph that this task's node invokes."""
        namespace = self.namespace
        ordinal, self.children = self.children, self.children + 1
        return f"{namespace}{NAMESPACE_SEPARATOR}{ordinal}" if ordinal else namespace

    def runtime(self) -> Runtime[Any]:
        """What the node can find out about its run."""
        scope, watch = self.superstep.scope, self.watch
        watched: dict[str, Any] = {"stream_writer": scope.writer}
        if watch is not None:
            watched = {"stream_writer": watch.writer(scope.writer), "heartbeat": watch.heartbeat}
        return Runtime(
            context=scope.context,
            store=scope.store,
            execution_info=self._execution_info(),
            server_info=ServerInfo.found_in(scope.settings.configurable),
            **watched,
        )

    def _execution_info(self) -> ExecutionInfo:
        settings, attempt = self.superstep.scope.settings, self.attempt
        thread_id = settings.configurable.get("thread_id")
        return ExecutionInfo(
            checkpoint_id=self.superstep.checkpoint_id,
            checkpoint_ns=self.namespace,
            task_id=self.id,
            thread_id=None if thread_id is None else str(thread_id),
            run_id=settings.run_id,
            node_attempt=1 if attempt is None else attempt.number,
            node_first_attempt_time=None if attempt is None else attempt.first_time,
        )

    def settings_below(self) -> RunSettings:
        """What a graph that the node runs takes over, where it is not told otherwise."""
        settings = self.superstep.scope.settings
        if not self.spec.metadata:
            return settings
        return replace(settings, metadata={**settings.metadata, **self.spec.metadata})

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
                **task_metadata(
                    step=step.step,
                    node=self.name,
                    triggers=self.triggers,
                    path=self.path,
                    checkpoint_ns=self.namespace,
                ),
                **self.spec.metadata,
            },
            run_name=self.name,
        )
        if settings.run_id is not None:
            config["run_id"] = settings.run_id
        if settings.callbacks is not None:
            config["callbacks"] = settings.callbacks
        return config


def running_task() -> Task | None:
    """The task whose node is running here, if any."""
    task = current_task.get()
    return task if isinstance(task, Task) else None
