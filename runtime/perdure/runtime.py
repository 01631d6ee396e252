"""What a node can find out about the run that it is part of, and do to it."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """Which deployment of which graph runs this, for whom, where a server said so."""

    assistant_id: str | None = None
    graph_id: str | None = None
    user: Any = None

    @classmethod
    def found_in(cls, configurable: Mapping[str, Any]) -> ServerInfo | None:
        """What a server left in a run's configurable; None if it left nothing."""
        info = cls(
            assistant_id=configurable.get("assistant_id"),
            graph_id=configurable.get("graph_id"),
            user=configurable.get("langgraph_auth_user"),
        )
        return None if info == _NO_SERVER else info


_NO_SERVER: Final = ServerInfo()


async def _no_wait() -> None:
    """Return at once, where nobody reads."""


def _nothing(*_: Any) -> None:
    """Where a run has nobody to tell."""


@dataclass(frozen=True, kw_only=True)  # no slots: with them `Runtime[T](...)` fails in Python 3.11
class Runtime(Generic[Context]):
    """What a run offers to its nodes.

    Attributes:
        context: what the run was called with as `context`, as the graph's context_schema has it.
        store: the graph's store.
        stream_writer: puts a "custom" event into the run's stream; does nothing when nobody reads these.
        flush: waits until the stream's readers have caught up; await it in a node that puts many events.
        heartbeat: tells a node's idle timeout that the node makes progress.
        previous: what the last run of an entrypoint on this thread kept.
        execution_info: which task this is; None in a Runtime that no task made.
        server_info: None where no server runs the graph.

    It may be handed to threads that the node starts.
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
        """This one, with what `other` has in place of its own."""
        said = {field.name: getattr(other, field.name) for field in fields(other)}
        return replace(
            self, **{name: value for name, value in said.items() if value not in (None, _nothing, _no_wait)}
        )

    def override(self, **changes: Any) -> Runtime[Context]:
        """This one with other values for the fields that are named."""
        return replace(self, **changes)

    def patch_execution_info(self, **changes: Any) -> Runtime[Context]:
        """This one with other values for those fields of its `execution_info`."""
        if self.execution_info is None:
            raise NotInNodeError("This Runtime belongs to no task, so it has no execution_info to change.")
        return replace(self, execution_info=replace(self.execution_info, **changes))

    def in_thread(self, function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        """The function as one that can be called in another thread and finds there what it finds here.

        Among that: this run, for `get_config` and its like.
        """
        context = copy_context()

        @wraps(function)
        def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            return context.copy().run(function, *args, **kwargs)  # one context is in one thread at a time

        return call


def get_runtime(context_schema: type[Context] | None = None) -> Runtime[Context]:
    """The Runtime of the node that this is called below. The schema only tells type checkers."""
    runtime: Runtime[Context] = require_task("get_runtime").runtime()
    return runtime
