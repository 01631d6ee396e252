"""A run's output: the state keys that its callers and readers see."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from perdure.channels.base import shallow_copy
from perdure.pregel.plan.names import names_of
from perdure.pregel.step.state import ThreadState
from perdure.pregel.step.task import Writes


class Output:
    """The keys that a run shows, and how states and writes look through them.

    Attributes:
        keys: several keys, shown as a dict; or a single one, whose bare value is shown.
        names: these keys as a set.
    """

    __slots__ = ("keys", "names")

    def __init__(self, keys: str | Sequence[str]) -> None:
        self.keys = keys
        self.names = frozenset(names_of(keys))

    def of(self, state: ThreadState) -> Any:
        """Return the output of a state, the reader's to change: containers are shallow copies."""
        if isinstance(self.keys, str):
            return shallow_copy(state.value(self.keys, None))
        return state.select(self.keys)

    def update(self, writes: Writes) -> Any:
        """Return a task's part of the output: a dict, None, or a list of dicts if a key was written twice.

        Of an output that is one bare value, that value. Containers are copies, the reader's to change.
        """
        if isinstance(self.keys, str):
            values = [shallow_copy(value) for key, value in writes if key == self.keys]
            return values if len(values) > 1 else values[0] if values else None
        updates: list[dict[str, Any]] = [{}]
        for key, value in writes:
            if key in self.names:
                if key in updates[-1]:
                    updates.append({})
                updates[-1][key] = shallow_copy(value)
        return updates if len(updates) > 1 else updates[0] or None


@lru_cache(maxsize=1_024)
def output_of(keys: str | tuple[str, ...]) -> Output:
    """Return the output of these keys, which most runs of a graph share."""
    return Output(keys)
