"""The ends of supersteps and runs: the exception that is raised, and the record of it."""

from __future__ import annotations

from perdure.checkpoint.base import RunEnd
from perdure.errors import ParentCommand
from perdure.pregel.lease.claim import end_of
from perdure.pregel.step.failures import first_failure
from perdure.pregel.step.outcome import Left, Ran, raised_by
from perdure.pregel.work.handoff import joined_departures


def ending_of(ran: Ran) -> BaseException:
    """Return the exception that ends a run after a superstep in which not all tasks finished.

    It is the exception that cut the superstep short; else the first error, or a signal if there is no error;
    else, if tasks only left, the commands of all of them.
    """
    if ran.cut_short is not None:
        return ran.cut_short
    bad = [(outcome, error) for outcome in ran.outcomes if (error := raised_by(outcome)) is not None]
    left = [outcome for outcome, _ in bad if isinstance(outcome, Left)]
    if len(left) == len(bad):
        return joined_departures(left)
    return first_failure([(outcome.task.name, error) for outcome, error in bad])


def recorded_end(error: BaseException) -> RunEnd:
    """Return the recorded end of a root run that an exception has stopped.

    A command for another graph is a success: this graph has done its part.
    """
    return RunEnd(status="success") if isinstance(error, ParentCommand) else end_of(error)
