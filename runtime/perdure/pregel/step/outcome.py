"""Outcomes: the ways in which a task can end.

    Outcome
    ├── Finished  it wrote something, or nothing
    ├── Failed    its node raised an error, which another task may handle
    ├── Waiting   its node raised a signal that is not an error: it waits
    ├── Left      it has a command for a graph around its own
    └── Stopped   it did not come to its end

Match on them exhaustively, ending in `assert_never`: then a new outcome fails type checking everywhere
until it is handled. Whatever the outcome, `writes` holds what the task wrote: nothing unless it finished.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple, assert_never

from perdure.errors import GraphBubbleUp, ParentCommand
from perdure.pregel.step.state import Preview
from perdure.pregel.step.task import Task, Writes

NO_PREVIEW: Final = Preview({}, {})

StoppedBy = Literal["sibling", "deadline", "drain", "caller"]
"""The cause of a task's early end: a sibling's failure, a time limit of its superstep, the request to end
soon, or the cancellation of the run."""


class Finished(NamedTuple):
    """The end of a task whose node returned.

    Attributes:
        writes: the writes to channels, in their order.
        routed: how many of them precede those of its conditional edges.
        preview: the state keys as the task's own writes leave them, made for its conditional edges.
        restored: whether the writes come from the saver, not from a node that ran now.
    """

    task: Task
    writes: Writes
    routed: int
    preview: Preview = NO_PREVIEW
    restored: bool = False


class Failed(NamedTuple):
    """The end of a task whose node raised an error.

    Attributes:
        handler: the task that runs in its place and has its own outcome; None: the error stops the run.
        restored: whether the failure comes from the saver.
    """

    task: Task
    error: BaseException
    handler: Task | None = None
    restored: bool = False

    @property
    def writes(self) -> Writes:
        return []


class Waiting(NamedTuple):
    """The end of a task whose node raised a signal that it cannot go on yet."""

    task: Task
    signal: GraphBubbleUp

    @property
    def writes(self) -> Writes:
        return []


class Left(NamedTuple):
    """The end of a task that has a command for a graph around its own."""

    task: Task
    command: ParentCommand

    @property
    def writes(self) -> Writes:
        return []


class Stopped(NamedTuple):
    """The end of a task that was cancelled, or never began."""

    task: Task
    by: StoppedBy

    @property
    def writes(self) -> Writes:
        return []


Outcome = Finished | Failed | Waiting | Left | Stopped


class Ran(NamedTuple):
    """The end of a superstep's tasks.

    Attributes:
        outcomes: one for each task and each error handler, in the order in which they came.
        finished: whether every task has finished, or its handler has: the superstep can be applied.
        cut_short: the cancellation of the run, or a TimeoutError, for the caller to raise; None without one.
    """

    outcomes: Sequence[Outcome]
    finished: bool
    cut_short: BaseException | None = None


def raised_by(outcome: Outcome) -> BaseException | None:
    """Return what stops a run whose task ended so; None if its superstep can still be applied."""
    match outcome:
        case Failed(handler=None):
            return outcome.error
        case Waiting():
            return outcome.signal
        case Left():
            return outcome.command
        case Finished() | Failed() | Stopped():
            return None
        case _:
            assert_never(outcome)


def still_to_run(tasks: Sequence[Task], known: Iterable[Outcome]) -> list[Task]:
    """Return the tasks without a known outcome, and handlers in place of those that have failed."""
    outcomes = {outcome.task: outcome for outcome in known}
    acting = []
    for task in tasks:
        outcome = outcomes.get(task)
        if isinstance(outcome, Failed) and outcome.handler is not None:
            task = outcome.handler
        acting.append(task)
    return [task for task in acting if task not in outcomes]
