"""Facts: what happens in a run, as values.

The recorder turns them into rows, each stream mode into events, and debug into lines for a person. A fact is
made only where somebody listens for its kind.
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
        others_run: whether tasks of its superstep still run.
        output: the keys that the run shows.
    """

    outcome: Outcome
    others_run: bool
    output: Output


class SuperstepApplied(NamedTuple):
    """The writes of a superstep are part of the state.

    Attributes:
        position: the checkpoint that holds, or will hold, the state.
        outcomes: those that were applied; none of an input or a fork.
        changed: the channels that are not what they were; None where that is not known.
        state: the thread's state, to be read at once: the run goes on changing it.
        stores: whether the checkpoint is about to be stored, so that SuperstepStored follows.
    """

    position: Position
    outcomes: Sequence[Outcome]
    changed: Set[str] | None
    state: ThreadState
    output: Output
    stores: bool


class SuperstepStored(NamedTuple):
    """The checkpoint of a superstep is stored; told only in "sync", before the next superstep starts.

    Attributes: those of SuperstepApplied.
    """

    position: Position
    changed: Set[str] | None
    state: ThreadState
    output: Output


class RunPaused(NamedTuple):
    """A run stops on purpose; what is left to do stays with the thread."""

    position: Position


class RunEnded(NamedTuple):
    """A run is over.

    Attributes:
        error: what stopped it; None if it came to its end.
    """

    error: BaseException | None


Fact = TaskStarted | TaskTold | TaskEnded | SuperstepApplied | SuperstepStored | RunPaused | RunEnded

EVERY_KIND: Final[frozenset[type[Fact]]] = frozenset(
    {TaskStarted, TaskTold, TaskEnded, SuperstepApplied, SuperstepStored, RunPaused, RunEnded}
)
