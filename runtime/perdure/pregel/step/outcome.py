"""Outcomes: the ways in which a task can end.

    Outcome
    ├── Finished  its node returned
    ├── Failed    its node raised an error; an error handler may run in its place
    ├── Waiting   its node raised a signal: it cannot go on yet
    ├── Left      its node returned a command for a parent graph
    └── Stopped   it was cancelled, or never began

Match on all of them and end the match in `assert_never`: then a new outcome fails type checking until every
match handles it. Every outcome has `writes`, which are empty unless the task finished.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple, assert_never

from perdure.errors import GraphBubbleUp, ParentCommand
from perdure.pregel.step.state import Preview
from perdure.pregel.step.task import Task, Writes

NO_PREVIEW: Final = Preview({}, {})

StoppedBy = Literal["sibling", "deadline", "drain", "caller"]
"""The cause of a task's early end: the failure of a sibling, the time limit of the superstep, a request to
drain, or the cancellation of the run."""


class Finished(NamedTuple):
    """The end of a task whose node returned.

    Attributes:
        writes: the node's update and destinations, then the writes of its conditional edges.
        routed: the number of writes that precede those of conditional edges.
        preview: the state keys after the task's own writes, computed for its conditional edges.
        restored: True if the writes come from the saver, not from a node that ran now.
    """

    task: Task
    writes: Writes
    routed: int
    preview: Preview = NO_PREVIEW
    restored: bool = False


class Failed(NamedTuple):
    """The end of a task whose node raised an error.

    Attributes:
        handler: the task that runs in its place and has an outcome of its own. None: the error stops the run.
        restored: True if the failure comes from the saver.
    """

    task: Task
    error: BaseException
    handler: Task | None = None
    restored: bool = False

    @property
    def writes(self) -> Writes:
        return []


class Waiting(NamedTuple):
    """The end of a task whose node raised a signal because it cannot go on yet."""

    task: Task
    signal: GraphBubbleUp

    @property
    def writes(self) -> Writes:
        return []


class Left(NamedTuple):
    """The end of a task whose node returned a command for a parent graph."""

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
        outcomes: one for each task and each error handler, in the order in which they ended.
        finished: True if every task or its error handler has finished, so that the superstep can be applied.
        cut_short: the exception that ended the superstep early, for the caller to raise: the cancellation of
            the run or a TimeoutError.
    """

    outcomes: Sequence[Outcome]
    finished: bool
    cut_short: BaseException | None = None


def raised_by(outcome: Outcome) -> BaseException | None:
    """Return the exception that an outcome stops its run with; None if it has none."""
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
    """Return the tasks without a known outcome. An error handler takes the place of its failed task."""
    outcomes = {outcome.task: outcome for outcome in known}
    acting = []
    for task in tasks:
        outcome = outcomes.get(task)
        if isinstance(outcome, Failed) and outcome.handler is not None:
            task = outcome.handler
        acting.append(task)
    return [task for task in acting if task not in outcomes]
