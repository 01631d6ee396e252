"""Facts: the things that happen in a run, as values.

The recorder turns them into rows, each stream mode into events, and the printer into lines for a person. A
fact is made only if somebody listens for its kind.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any, Final, NamedTuple

from perdure.pregel.step.outcome import Outcome
from perdure.pregel.step.output import Output
from perdure.pregel.step.state import ThreadState
from perdure.pregel.step.task import Position, Task


class TaskStarted(NamedTuple):
    """A task begins."""

    task: Task


class TaskTold(NamedTuple):
    """The body of a task's node put an event into the stream."""

    task: Task
    event: Any


class TaskEnded(NamedTuple):
    """A task has an outcome.

    Attributes:
        others_run: True if other tasks of the superstep still run.
        output: the keys that the run shows.
    """

    outcome: Outcome
    others_run: bool
    output: Output


class SuperstepApplied(NamedTuple):
    """The writes of a superstep are part of the state.

    Attributes:
        position: the checkpoint that holds the state, or will hold it.
        outcomes: the outcomes that were applied; none for an input or a fork.
        changed: the channels that changed; None if they are not known.
        state: the thread's state. Read it at once, because the run goes on changing it.
        output: the keys that the run shows.
        stores: True if the checkpoint is about to be stored, so that SuperstepStored follows.
    """

    position: Position
    outcomes: Sequence[Outcome]
    changed: Set[str] | None
    state: ThreadState
    output: Output
    stores: bool


class SuperstepStored(NamedTuple):
    """The checkpoint of a superstep is stored: told in durability "sync", before the next superstep starts.

    Attributes: as in SuperstepApplied.
    """

    position: Position
    changed: Set[str] | None
    state: ThreadState
    output: Output


class RunPaused(NamedTuple):
    """A run stops at a breakpoint. Tasks that are left to do stay with the thread."""

    position: Position


class RunEnded(NamedTuple):
    """A run is over.

    Attributes:
        error: the exception that stopped it; None if it came to its end.
    """

    error: BaseException | None


Fact = TaskStarted | TaskTold | TaskEnded | SuperstepApplied | SuperstepStored | RunPaused | RunEnded

EVERY_KIND: Final[frozenset[type[Fact]]] = frozenset(
    {TaskStarted, TaskTold, TaskEnded, SuperstepApplied, SuperstepStored, RunPaused, RunEnded}
)
