"""The "custom" mode: what nodes give to their stream writer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from perdure.pregel.events.facts import TaskTold

LISTENS: Final = (TaskTold,)


def project(fact: TaskTold) -> Iterator[Any]:
    """Yield the event as it was given."""
    yield fact.event
