"""The ends of supersteps and runs: what is raised when tasks fail, and what is recorded of it."""

from __future__ import annotations

from perdure.checkpoint.base import RunEnd
from perdure.errors import ParentCommand
from perdure.pregel.lease.claim import end_of
from perdure.pregel.step.failures import first_failure
from perdure.pregel.step.outcome import Left, Ran, raised_by
from perdure.pregel.work.handoff import joined_departures


def ending_of(ran: Ran) -> BaseException:
    """Return what a run ends with whose tasks did not all finish.

    That is what cut them short; else the first error; else the commands of all tasks that left.
    """
    if ran.cut_short is not None:
        return ran.cut_short
    bad = [(outcome, error) for outcome in ran.outcomes if (error := raised_by(outcome)) is not None]
    left = [outcome for outcome, _ in bad if isinstance(outcome, Left)]
    if len(left) == len(bad):
        return joined_departures(left)
    return first_failure([(outcome.task.name, error) for outcome, error in bad])


def recorded_end(error: BaseException) -> RunEnd:
    """Return the end of a root run that an error has stopped; a command for another graph is a success."""
    return RunEnd(status="success") if isinstance(error, ParentCommand) else end_of(error)
