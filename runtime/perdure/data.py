"""Plain data that crosses the public surface."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from typing import Any, ClassVar, Generic, Literal, NamedTuple

from typing_extensions import TypeVar

from perdure.constants import MISSING

Node_co = TypeVar("Node_co", bound=str, default=str, covariant=True)

Durability = Literal["sync", "async", "exit"]
"""When a superstep's results are stored: before the next one starts, while at most two finished ones
are not yet acknowledged, or when the run ends."""

StreamMode = Literal["values", "updates", "custom"]

StreamWriter = Callable[[Any], None]
"""What a node is given to put "custom" events into the stream."""

RunStatus = Literal["running", "success", "error", "cancelled"]


@dataclass(frozen=True, slots=True)
class Send:
    """Runs `node` in the next superstep with `arg` as its input, beside whatever else runs then.

    Attributes:
        timeout: in place of the node's own: seconds, a timedelta, or a TimeoutPolicy.
    """

    node: str
    arg: Any
    _: KW_ONLY
    timeout: float | timedelta | TimeoutPolicy | None = None


@dataclass(frozen=True, kw_only=True)  # no slots: with them `Command[T](...)` fails in Python 3.11
class Command(Generic[Node_co]):
    """Updates the state and says where to go, in one return value of a node, or as an input.

    A node annotated to return `Command[Literal["a", "b"]]` declares where it may go.

    Attributes:
        graph: whose state and nodes are meant: None for this graph, PARENT for the one around it, or the
            name of a node in which an enclosing graph runs.
        update: what a node could have returned: a mapping, or a sequence of `(key, value)` pairs.
        resume: the answer to what the thread waits for; only in an input. None is an answer.
        goto: a node's name, a Send, or a sequence of them. Edges of the node fire as well.
    """

    PARENT: ClassVar[Literal["__parent__"]] = "__parent__"

    graph: str | None = None
    update: Any = None
    resume: Any = MISSING
    goto: Node_co | Send | Sequence[Node_co | Send] = ()


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Written to a key with a reducer: the value replaces what is there instead of being reduced into it."""

    value: Any


@dataclass(frozen=True, slots=True)
class PregelTask:
    """A task of a thread at rest.

    Attributes:
        error: what the task last failed with, as text; None if it did not fail.
        result: what a finished task wrote, by state key; of a state that is a bare value, that; None while
            it has not finished.
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
        values: the state, private keys included: a dict, or the bare value if that is what the state is.
    """

    values: dict[str, Any] | Any
    next: tuple[str, ...]
    config: dict[str, Any]
    metadata: dict[str, Any] | None
    created_at: str | None
    parent_config: dict[str, Any] | None
    tasks: tuple[PregelTask, ...]
    interrupts: tuple[Any, ...] = ()


# How a node runs


class RetryPolicy(NamedTuple):
    """When and how often a node that failed is run again.

    Before attempt n + 1 it waits `initial_interval * backoff_factor ** (n - 1)` seconds, at most
    `max_interval`, with `jitter` up to one second more.

    Attributes:
        max_attempts: how often the node runs in all.
        retry_on: an exception class, a sequence of them, or a predicate; None: `default_retry_on`, which
            takes for passing what fails on the way to others.
    """

    initial_interval: float = 0.5
    backoff_factor: float = 2.0
    max_interval: float = 128.0
    max_attempts: int = 3
    jitter: bool = True
    retry_on: type[Exception] | Sequence[type[Exception]] | Callable[[Exception], bool] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePolicy:
    """A node whose result may be used again for an equal input.

    Attributes:
        key_func: makes of the node's input what is compared instead: a string or bytes.
        ttl: how many seconds a result may be used; None: for ever.
    """

    key_func: Callable[..., str | bytes] | None = None
    ttl: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutPolicy:
    """How long one attempt of a node may take.

    Attributes:
        run_timeout: seconds, or a timedelta, from its beginning to its end.
        idle_timeout: the same, without a sign of progress.
        refresh_on: what is such a sign: "auto", whatever the node writes to a stream or starts, and
            `runtime.heartbeat()`; or "heartbeat", that alone.
    """

    run_timeout: float | timedelta | None = None
    idle_timeout: float | timedelta | None = None
    refresh_on: Literal["auto", "heartbeat"] = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeError:
    """What an error handler is told: which node failed, and with what.

    Attributes:
        error: what the node raised, as itself; a `StoredError` with its text where the node failed in an
            earlier run, whose handler did not come to its end.
    """

    node: str
    error: BaseException
