"""The channel of a key whose reducer takes all writes of a superstep in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Self

from perdure.channels.base import BaseChannel, Value, shallow_copy
from perdure.channels.binop import initial_value, replacement_among, same_reducer
from perdure.constants import MISSING, Missing
from perdure.errors import EmptyChannelError, GraphValidationError

_FREQUENCY: Final = 100
"""What it is where it is not given; nothing depends on it."""


class DeltaChannel(BaseChannel[Value, Any]):
    """Holds what a reducer makes of all values written so far, and calls it once per superstep.

    It starts from `typ()`, and an Overwrite replaces the value as in other reduced keys. None is no value
    of it: overwritten with None it starts anew. Under any channel with a reducer a list is stored as what
    changed in it, so nothing needs this one; it is here for graphs that name it.

    Attributes:
        reducer: called as `reducer(value so far, [values written])`. How writes fall into supersteps must
            not matter to it.
        snapshot_frequency: accepted and without effect: snapshots are taken by weight, not by number.
    """

    __slots__ = ("reducer", "snapshot_frequency", "value")

    value: Value | Missing

    def __init__(
        self,
        reducer: Callable[[Any, Sequence[Any]], Any],
        typ: Any = None,
        *,
        snapshot_frequency: int = _FREQUENCY,
        key: str = "",
    ) -> None:
        """Make a channel of a reducer that takes a list of writes.

        Args:
            typ: the type of the value; default: that of the state's annotation, else a list.
        """
        if snapshot_frequency <= 0:
            raise GraphValidationError(
                f"snapshot_frequency must be greater than 0, got {snapshot_frequency!r}. Leave it out: it "
                "has no effect."
            )
        super().__init__(typ, key)
        self.reducer = reducer
        self.snapshot_frequency = snapshot_frequency
        self.value = MISSING

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeltaChannel) and same_reducer(self.reducer, other.reducer)

    __hash__ = BaseChannel.__hash__

    def update(self, values: Sequence[Any]) -> bool:
        if not values:
            return False
        replacement = replacement_among(self.key, values)
        value = self._reduce(list(values)) if replacement is MISSING else shallow_copy(replacement)
        self.value = self._start() if value is None else value
        return True

    def get(self) -> Value:
        value = self._current()
        if value is MISSING:
            raise EmptyChannelError(f"Key {self.key!r} has no value: nothing has been written to it yet.")
        return value  # type: ignore[no-any-return]  # as the type says, if it was told the truth

    def is_available(self) -> bool:
        return self._current() is not MISSING

    def checkpoint(self) -> Value | Missing:
        return self.value

    def from_checkpoint(self, stored: Any) -> Self:
        channel = type(self)(self.reducer, self.typ, snapshot_frequency=self.snapshot_frequency, key=self.key)
        channel.value = MISSING if stored is None else stored
        return channel

    def _current(self) -> Any:
        """The value; as long as nothing was written, what the type starts from."""
        return self._start() if self.value is MISSING else self.value

    def _start(self) -> Any:
        return initial_value(list if self.typ is None else self.typ)

    def _reduce(self, values: list[Any]) -> Any:
        current = self._current()
        # A reducer that changes its left side in place changes only this copy.
        reduced = self.reducer(None if current is MISSING else shallow_copy(current), values)
        # What a node wrote stays the node's, who may go on changing it.
        return shallow_copy(reduced) if any(reduced is value for value in values) else reduced
