"""The "updates" mode: the update of each task, when the task ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from perdure.constants import INTERRUPT, START
from perdure.pregel.events.facts import RunPaused, TaskEnded
from perdure.pregel.plan.plan import Calling
from perdure.pregel.step.outcome import Finished

LISTENS: Final = (TaskEnded, RunPaused)


def project(fact: TaskEnded | RunPaused) -> Sequence[Any]:
    """Return `{node: update}` for a finished task, marked as cached if its node did not run now."""
    if isinstance(fact, RunPaused):
        return ({INTERRUPT: ()},)
    outcome = fact.outcome
    spec = outcome.task.spec
    if not isinstance(outcome, Finished) or spec.name == START:
        return ()
    update = {spec.name: fact.output.update(outcome.writes)}
    if outcome.restored or spec.calling is Calling.CACHED:
        update["__metadata__"] = {"cached": True}
    return (update,)
