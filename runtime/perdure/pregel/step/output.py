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
    """The keys that a run shows, applied to states and to writes.

    Attributes:
        keys: several keys, shown as a dict, or a single key, shown as its bare value.
        names: these keys as a set.
    """

    __slots__ = ("keys", "names")

    def __init__(self, keys: str | Sequence[str]) -> None:
        self.keys = keys
        self.names = frozenset(names_of(keys))

    def of(self, state: ThreadState) -> Any:
        """Return the output of a state. Containers are shallow copies, which the reader may change."""
        if isinstance(self.keys, str):
            return shallow_copy(state.value(self.keys, None))
        return state.select(self.keys)

    def update(self, writes: Writes) -> Any:
        """Return the part of the output that a task wrote. Containers are shallow copies.

        Returns:
            For several keys, a dict, or a list of dicts if a key was written more than once. For a single
            key, its value, or a list of its values. None if no key was written.
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
    """Return the output of these keys. Most runs of a graph share one, so it is cached."""
    return Output(keys)
