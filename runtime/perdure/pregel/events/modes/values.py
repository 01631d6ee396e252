"""The "values" mode: the output, whenever a superstep has changed it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from perdure.pregel.events.facts import SuperstepApplied, SuperstepStored

LISTENS: Final = (SuperstepApplied, SuperstepStored)


def project(fact: SuperstepApplied | SuperstepStored) -> Sequence[Any]:
    """Return the output if a superstep changed it. If it is going to be stored, wait for SuperstepStored."""
    if isinstance(fact, SuperstepApplied) and fact.stores:
        return ()
    if fact.changed is not None and fact.output.names.isdisjoint(fact.changed):
        return ()
    return (fact.output.of(fact.state),)
