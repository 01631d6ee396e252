"""Plain data that crosses the public surface."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

Durability = Literal["sync", "async", "exit"]
"""When a superstep's results are stored: before the next one starts, while at most two finished ones
are not yet acknowledged, or when the run ends."""

StreamMode = Literal["values", "updates"]

RunStatus = Literal["running", "success", "error", "cancelled"]


@dataclass(frozen=True, slots=True)
class Send:
    """Runs `node` in the next superstep with `arg` as its input, beside whatever else runs then."""

    node: str
    arg: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """Updates the state and says where to go, in one return value of a node.

    Attributes:
        update: what a node could have returned: a mapping, or a sequence of `(key, value)` pairs.
        goto: a node's name, a Send, or a sequence of them. Edges of the node fire as well.
    """

    update: Any = None
    goto: str | Send | Sequence[str | Send] = ()


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Written to a key with a reducer: the value replaces what is there instead of being reduced into it."""

    value: Any


@dataclass(frozen=True, slots=True)
class PregelTask:
    """A task of a thread at rest.

    Attributes:
        error: what the task last failed with, as text; None if it did not fail.
        result: what a finished task wrote, by state key; None while it has not finished.
    """

    id: str
    name: str
    path: tuple[str | int, ...]
    error: str | None = None
    interrupts: tuple[Any, ...] = ()
    state: Any = None
    result: dict[str, Any] | None = None


class StateSnapshot(NamedTuple):
    """A thread at rest, seen at one checkpoint."""

    values: dict[str, Any]
    next: tuple[str, ...]
    config: dict[str, Any]
    metadata: dict[str, Any] | None
    created_at: str | None
    parent_config: dict[str, Any] | None
    tasks: tuple[PregelTask, ...]
    interrupts: tuple[Any, ...] = ()
