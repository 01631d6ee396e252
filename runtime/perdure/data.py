"""Plain data of the public surface."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from typing import Any, ClassVar, Generic, Literal, NamedTuple

from typing_extensions import TypeVar

from perdure.constants import MISSING

Node_co = TypeVar("Node_co", bound=str, default=str, covariant=True)

Durability = Literal["sync", "async", "exit"]
"""The moment at which a superstep's results are stored: before the next one starts ("sync"), while at most
two finished ones are not yet stored ("async"), or when the run ends ("exit")."""

StreamMode = Literal["values", "updates", "custom"]

StreamWriter = Callable[[Any], None]
"""A function that puts "custom" events into the stream of a run."""

RunStatus = Literal["running", "success", "error", "cancelled"]


@dataclass(frozen=True, slots=True)
class Send:
    """An order to run `node` in the next superstep with `arg` as its input, beside all other tasks.

    Attributes:
        timeout: a timeout in place of the node's own: seconds, a timedelta, or a TimeoutPolicy.
    """

    node: str
    arg: Any
    _: KW_ONLY
    timeout: float | timedelta | TimeoutPolicy | None = None


@dataclass(frozen=True, kw_only=True)  # no slots: with them `Command[T](...)` fails in Python 3.11
class Command(Generic[Node_co]):
    """An update of the state and destinations in one value, returned by a node or given as an input.

    A node that is annotated to return `Command[Literal["a", "b"]]` declares its destinations.

    Attributes:
        graph: the graph that the command is for: None is the node's own, PARENT the one around it; the
            name of a node means the graph that runs in that node.
        update: a mapping, or a sequence of `(key, value)` pairs.
        resume: the answer to a wait of the thread, only in an input. None is an answer.
        goto: a node's name, a Send, or a sequence of these. The node's edges fire as well.
    """

    PARENT: ClassVar[Literal["__parent__"]] = "__parent__"

    graph: str | None = None
    update: Any = None
    resume: Any = MISSING
    goto: Node_co | Send | Sequence[Node_co | Send] = ()


@dataclass(frozen=True, slots=True)
class Overwrite:
    """A write to a key with a reducer that replaces the value instead of being reduced into it."""

    value: Any


@dataclass(frozen=True, slots=True)
class PregelTask:
    """A task of a thread at rest.

    Attributes:
        error: the task's last failure, as text; None if it did not fail.
        result: the writes of a finished task by state key, or the bare value if the state is one; None if it
            has not finished.
    """

    id: str
    name: str
    path: tuple[str | int, ...]
    error: str | None = None
    interrupts: tuple[Any, ...] = ()
    state: Any = None
    result: Any = None


class StateSnapshot(NamedTuple):
    """A thread at rest, seen at one checkpoint.

    Attributes:
        values: the state with its private keys: a dict, or the bare value if the state is one.
        next: the names of the nodes that would run next.
        config: the config that addresses this checkpoint.
        parent_config: the config that addresses the checkpoint before it.
        tasks: the tasks that would run next.
    """

    values: Any
    next: tuple[str, ...]
    config: dict[str, Any]
    metadata: dict[str, Any] | None
    created_at: str | None
    parent_config: dict[str, Any] | None
    tasks: tuple[PregelTask, ...]
    interrupts: tuple[Any, ...] = ()


# How a node runs


class RetryPolicy(NamedTuple):
    """A rule for running a node again after it failed.

    The wait before attempt n + 1 is `initial_interval * backoff_factor ** (n - 1)` seconds, at most
    `max_interval`. `jitter` adds up to one second.

    Attributes:
        max_attempts: the number of attempts in all, the first included.
        retry_on: the errors that are retried: an exception class, a sequence of them, or a predicate; None:
            those that may pass, see `default_retry_on`.
    """

    initial_interval: float = 0.5
    backoff_factor: float = 2.0
    max_interval: float = 128.0
    max_attempts: int = 3
    jitter: bool = True
    retry_on: type[Exception] | Sequence[type[Exception]] | Callable[[Exception], bool] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePolicy:
    """A rule for using a node's result again for an equal input.

    Attributes:
        key_func: a function that makes a string or bytes of the node's input, to be compared in its place.
        ttl: the seconds for which a result may be used; None: no limit.
    """

    key_func: Callable[..., str | bytes] | None = None
    ttl: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutPolicy:
    """The time limits of one attempt of a node.

    Attributes:
        run_timeout: the longest time from its beginning to its end: seconds, or a timedelta.
        idle_timeout: the longest time without a sign of progress: seconds, or a timedelta.
        refresh_on: the signs of progress: "auto" means everything that the node writes to a stream or starts,
            and `runtime.heartbeat()`; "heartbeat" means that call alone.
    """

    run_timeout: float | timedelta | None = None
    idle_timeout: float | timedelta | None = None
    refresh_on: Literal["auto", "heartbeat"] = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeError:
    """The failure that an error handler is called for.

    Attributes:
        node: the node that failed.
        error: the exception that the node raised; a `StoredError` with its text if that was in an earlier
            run, whose handler did not finish.
    """

    node: str
    error: BaseException
