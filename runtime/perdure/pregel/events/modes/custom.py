"""The "custom" mode: the values that nodes give to their stream writer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from perdure.pregel.events.facts import TaskTold

LISTENS: Final = (TaskTold,)


def project(fact: TaskTold) -> Sequence[Any]:
    """Return the value as the node gave it."""
    return (fact.event,)
