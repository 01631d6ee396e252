"""What a node can find out about the run that it is part of, and do to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, cast

from perdure.config import RunnableConfig
from perdure.context import current_task
from perdure.data import StreamWriter
from perdure.errors import NotInNodeError

Context = TypeVar("Context")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionInfo:
    """Which task of which run this is.

    Attributes:
        checkpoint_id: the checkpoint that the task was prepared from.
        thread_id: None for a run that stores nothing.
        node_attempt: 1 the first time, one more after each retry.
        node_first_attempt_time: when the first attempt began, in seconds since the epoch; None for a node
            without policies, which has one attempt.
    """

    checkpoint_id: str
    checkpoint_ns: str
    task_id: str
    thread_id: str | None = None
    run_id: str | None = None
    node_attempt: int = 1
    node_first_attempt_time: float | None = None


def _nothing(*_: Any) -> None:
    """Where a run has nobody to tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime(Generic[Context]):
    """What a run offers to its nodes.

    Attributes:
        context: what the run was called with as `context`, as the graph's context_schema has it.
        store: the graph's store.
        stream_writer: puts a "custom" event into the run's stream; does nothing when nobody reads these.
        heartbeat: tells a node's idle timeout that the node makes progress.
        previous: what the last run of an entrypoint on this thread kept.
    """

    context: Context = None  # type: ignore[assignment]  # as a run without a context has it
    store: Any = None
    stream_writer: StreamWriter = _nothing
    heartbeat: Callable[[], None] = _nothing
    previous: Any = None
    execution_info: ExecutionInfo | None = field(default=None)


class RunningTask(Protocol):
    """What the engine leaves in `current_task`."""

    def runtime(self) -> Runtime[Any]:
        """The task's view of its run."""
        ...

    def config(self) -> RunnableConfig:
        """The task's config, as a node gets it."""
        ...


def get_runtime(context_schema: type[Context] | None = None) -> Runtime[Context]:
    """The Runtime of the node that this is called below. The schema only tells type checkers."""
    return _running("get_runtime").runtime()


def get_config() -> RunnableConfig:
    """The config of the node that this is called below."""
    return _running("get_config").config()


def get_store() -> Any:
    """The store of the run that this is called in; None if it has none."""
    return _running("get_store").runtime().store


def get_stream_writer() -> StreamWriter:
    """What puts "custom" events into the stream of the run that this is called in."""
    return _running("get_stream_writer").runtime().stream_writer


def _running(asked: str) -> RunningTask:
    task = current_task.get()
    if task is None:
        raise NotInNodeError(
            f"Called {asked} outside of a runnable context: no node is running here. Code that a node hands "
            "to another thread sees it only in a copy of the node's contextvars."
        )
    return cast("RunningTask", task)
