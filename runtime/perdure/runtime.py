"""Runtime: the view that a node has of its run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import copy_context
from dataclasses import dataclass, fields, replace
from functools import wraps
from typing import Any, Final, Generic, ParamSpec

from typing_extensions import TypeVar

from perdure.config import get_config, get_store, get_stream_writer, require_task
from perdure.data import StreamWriter
from perdure.errors import NotInNodeError

__all__ = [
    # what a node is given
    "Runtime",
    "ExecutionInfo",
    "ServerInfo",
    # what code below it can ask for
    "get_runtime",
    "get_config",
    "get_store",
    "get_stream_writer",
]

Context = TypeVar("Context", default=Any)
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionInfo:
    """The identity of a task within its run.

    Attributes:
        checkpoint_id: the checkpoint that the task was prepared from.
        checkpoint_ns: the namespace of its graph.
        thread_id: None for a run that stores nothing.
        node_attempt: the number of the attempt, from 1.
        node_first_attempt_time: the time at which the first attempt began, in seconds since the epoch; None
            for a node without policies, which has one attempt.
    """

    checkpoint_id: str
    checkpoint_ns: str
    task_id: str
    thread_id: str | None = None
    run_id: str | None = None
    node_attempt: int = 1
    node_first_attempt_time: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """The deployment that runs a graph, and its user, if a server put them into the config."""

    assistant_id: str | None = None
    graph_id: str | None = None
    user: Any = None

    @classmethod
    def found_in(cls, configurable: Mapping[str, Any]) -> ServerInfo | None:
        """Read what a server put into a run's configurable; None if there is nothing."""
        info = cls(
            assistant_id=configurable.get("assistant_id"),
            graph_id=configurable.get("graph_id"),
            user=configurable.get("langgraph_auth_user"),
        )
        return None if info == _NO_SERVER else info


_NO_SERVER: Final = ServerInfo()


async def _no_wait() -> None:
    """Return at once, where nobody reads."""


def _nothing(*_: object) -> None:
    """Do nothing, where a run has no reader."""


@dataclass(frozen=True, kw_only=True)  # no slots: with them `Runtime[T](...)` fails in Python 3.11
class Runtime(Generic[Context]):
    """The services of a run for its nodes. A node may hand it to threads that it starts.

    Attributes:
        context: the run's `context`, in the graph's context_schema.
        store: the graph's store.
        stream_writer: a function that puts a "custom" event into the run's stream, if anybody reads these.
        flush: an async function that waits until the stream's readers have caught up; await it in a node that
            writes many events.
        heartbeat: a function that reports progress to the node's idle timeout.
        previous: the value that the last run of an entrypoint on this thread kept.
        execution_info: the identity of the task; None in a Runtime that belongs to no task.
        server_info: None where no server runs the graph.
    """

    context: Context = None  # type: ignore[assignment]  # as a run without a context has it
    store: Any = None
    stream_writer: StreamWriter = _nothing
    flush: Callable[[], Awaitable[None]] = _no_wait
    heartbeat: Callable[[], None] = _nothing
    previous: Any = None
    execution_info: ExecutionInfo | None = None
    server_info: ServerInfo | None = None

    def merge(self, other: Runtime[Context]) -> Runtime[Context]:
        """Return a copy with the fields that are set in `other` in place of its own."""
        given = {field.name: getattr(other, field.name) for field in fields(other)}
        return replace(
            self, **{name: value for name, value in given.items() if value not in (None, _nothing, _no_wait)}
        )

    def override(self, **changes: Any) -> Runtime[Context]:
        """Return a copy with other values for the fields that are named."""
        return replace(self, **changes)

    def patch_execution_info(self, **changes: Any) -> Runtime[Context]:
        """Return a copy with other values for these fields of its `execution_info`.

        Raises NotInNodeError if it belongs to no task.
        """
        if self.execution_info is None:
            raise NotInNodeError("This Runtime belongs to no task, so it has no execution_info to change.")
        return replace(self, execution_info=replace(self.execution_info, **changes))

    def in_thread(self, function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        """Return a function that can be called in another thread, in a copy of the present context.

        There `get_config` and the like find this run, and context variables have their present values.
        """
        context = copy_context()

        @wraps(function)
        def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            return context.copy().run(function, *args, **kwargs)  # one context is in one thread at a time

        return call


def get_runtime(context_schema: type[Context] | None = None) -> Runtime[Context]:
    """Return the Runtime of the node that calls this, directly or not.

    Args:
        context_schema: the type of `context`, for type checkers.

    Raises NotInNodeError outside of a node.
    """
    runtime: Runtime[Context] = require_task("get_runtime").runtime()
    return runtime
