"""Running tasks: what the context variable holds while a node's body runs, and what its run offers to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from perdure.cache.base import BaseCache
from perdure.clock import SYSTEM_CLOCK, Clock
from perdure.config import RunnableConfig, RunSettings, task_metadata
from perdure.context import current_task
from perdure.data import StreamWriter
from perdure.pregel.events.facts import TaskTold
from perdure.pregel.events.sink import Sink, Voice
from perdure.pregel.lease.session import Session
from perdure.pregel.step.namespace import Namespace
from perdure.pregel.step.task import Task
from perdure.pregel.work.time_limits import Watch
from perdure.runtime import ExecutionInfo, Runtime, ServerInfo


class Scope(NamedTuple):
    """Everything that one run offers to its nodes and hands down to the graphs below it.

    Attributes:
        context: the value that the run was called with, as the graph's context schema has it.
        session: the run's hold on its thread; None for a run that stores nothing.
        sink: the receiver of the run's facts; None if nobody reads them.
        above: the running task whose node the run was called in; None for one that no node called.
        loop: the event loop that the run goes on in.
        debug: whether each superstep is printed and watched for changes in place.
        random: draws from 0 up to 1, for what must not happen in step with others.
        watch: that of the nearest attempt around the run which has a time limit.
        step_timeout: how many seconds a superstep may take.
    """

    settings: RunSettings
    random: Callable[[], float]
    clock: Clock = SYSTEM_CLOCK
    context: Any = None
    store: Any = None
    cache: BaseCache | None = None
    session: Session | None = None
    sink: Sink | None = None
    debug: bool = False
    loop: Any = None
    above: RunningTask | None = None
    watch: Watch | None = None
    step_timeout: float | None = None


class Attempt(NamedTuple):
    """One attempt of a node with policies.

    Attributes:
        first_time: when the first one began, in seconds since the epoch.
        watch: None for a node without a time limit.
    """

    number: int
    first_time: float
    watch: Watch | None


class RunningTask:
    """A task while its body runs: one object for each attempt.

    Attributes:
        children: how many child graphs the body has invoked.
        attempt: None for a node without policies, which has one attempt.
    """

    __slots__ = ("_voice", "attempt", "children", "scope", "task")

    def __init__(self, task: Task, scope: Scope, attempt: Attempt | None = None) -> None:
        self.task = task
        self.scope = scope
        self.attempt = attempt
        self.children = 0
        self._voice: StreamWriter | None = None

    @property
    def again(self) -> bool:
        """Whether the node may have run before, so that something of its child graphs may be stored."""
        return self.task.superstep.resumed or (self.attempt is not None and self.attempt.number > 1)

    @property
    def watch(self) -> Watch | None:
        """The time limit that this task's progress counts for."""
        if self.attempt is not None and self.attempt.watch is not None:
            return self.attempt.watch
        return self.scope.watch

    def child_namespace(self) -> Namespace:
        """Return the namespace of the next child graph that this task's body invokes."""
        ordinal, self.children = self.children, self.children + 1
        return self.task.namespace.call(ordinal)

    # What the body can ask for

    def runtime(self) -> Runtime[Any]:
        """Return the node's view of its run."""
        scope, watch = self.scope, self.watch
        offered: dict[str, Any] = {}
        if watch is not None:
            offered["heartbeat"] = watch.heartbeat
        if scope.sink is not None:
            offered["flush"] = scope.sink.room
        return Runtime(
            context=scope.context,
            store=scope.store,
            stream_writer=self.stream_writer(),
            execution_info=self._execution_info(),
            server_info=ServerInfo.found_in(scope.settings.configurable),
            **offered,
        )

    def stream_writer(self) -> StreamWriter:
        """Return the function that puts "custom" events into the run's stream; they count as progress."""
        if self._voice is None:  # made once, because it counts the events
            sink, watch = self.scope.sink, self.watch
            heard = sink is not None and sink.wants(TaskTold)
            write = Voice(sink, self.task).write if sink is not None and heard else nobody_reads
            self._voice = write if watch is None else watch.writer(write)
        return self._voice

    def _execution_info(self) -> ExecutionInfo:
        task, settings, attempt = self.task, self.scope.settings, self.attempt
        thread_id = settings.configurable.get("thread_id")
        return ExecutionInfo(
            checkpoint_id=task.superstep.checkpoint_id,
            checkpoint_ns=task.namespace.text,
            task_id=task.id,
            thread_id=None if thread_id is None else str(thread_id),
            run_id=settings.run_id,
            node_attempt=1 if attempt is None else attempt.number,
            node_first_attempt_time=None if attempt is None else attempt.first_time,
        )

    def settings_below(self) -> RunSettings:
        """Return the settings that a graph run by this node inherits."""
        settings, metadata = self.scope.settings, self.task.spec.metadata
        return replace(settings, metadata={**settings.metadata, **metadata}) if metadata else settings

    def config(self) -> RunnableConfig:
        """Return the node's view of its run's config."""
        task, settings = self.task, self.scope.settings
        config = RunnableConfig(
            configurable={**settings.configurable, "checkpoint_ns": task.namespace.text},
            recursion_limit=settings.recursion_limit,
            max_concurrency=settings.max_concurrency,
            tags=list(dict.fromkeys((*settings.tags, *task.spec.tags))),
            metadata={
                **settings.metadata,
                **task_metadata(
                    step=task.superstep.step,
                    node=task.name,
                    triggers=task.triggers,
                    path=task.path,
                    checkpoint_ns=task.namespace.text,
                ),
                **task.spec.metadata,
            },
            run_name=task.name,
        )
        if settings.run_id is not None:
            config["run_id"] = settings.run_id
        if settings.callbacks is not None:
            config["callbacks"] = settings.callbacks
        return config


def nobody_reads(event: Any) -> None:
    """Drop a custom event of a run whose custom events nobody reads."""


def running_task() -> RunningTask | None:
    """Return the task whose node's body is running here, if any."""
    task = current_task.get()
    return task if isinstance(task, RunningTask) else None
