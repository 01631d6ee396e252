"""Running tasks: the object that the context variable holds while a body runs, and the offers of its run."""

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
    """Everything that one run offers to its nodes and hands down to child graphs.

    Attributes:
        context: the caller's context, as an object of the graph's context schema.
        session: the run's hold on its thread; None for a run that stores nothing.
        sink: the receiver of the run's facts; None if nobody reads them.
        debug: True to print each superstep and to watch inputs for changes in place.
        loop: the event loop of the run.
        above: the running task whose node called the run; None if no node did.
        random: a function that draws from 0 up to 1, for delays that must differ between runs.
        watch: the time limit of the nearest attempt around the run that has one.
        step_timeout: the seconds that a superstep may take.
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
        number: the number of the attempt, counted from 1.
        first_time: the time at which the first attempt began, in seconds since the epoch.
        watch: the attempt's time limit, if it has one.
    """

    number: int
    first_time: float
    watch: Watch | None


class RunningTask:
    """A task while its body runs: one object for each attempt.

    Attributes:
        children: the number of child graphs that the body has invoked.
        attempt: the attempt; None for a node without policies, which has only one.
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
        """True if the node may have run before, so that checkpoints of its child graphs may be stored."""
        return self.task.superstep.resumed or (self.attempt is not None and self.attempt.number > 1)

    @property
    def watch(self) -> Watch | None:
        """The time limit that this task's progress defers."""
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
        """Return the function that puts "custom" events into the run's stream. They count as progress."""
        if self._voice is None:  # one for the whole body, because it counts the body's events
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
    """Drop a custom event that nobody reads."""


def running_task() -> RunningTask | None:
    """Return the task whose body is running here; None outside of all bodies."""
    task = current_task.get()
    return task if isinstance(task, RunningTask) else None
