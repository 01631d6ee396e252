"""The channel for a key whose reducer takes all writes of a superstep in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Self

from perdure.channels.base import BaseChannel, Value, shallow_copy
from perdure.channels.binop import initial_value, replacement_among, same_reducer
from perdure.constants import MISSING, Missing
from perdure.errors import EmptyChannelError, GraphValidationError

_FREQUENCY: Final = 100
"""The default of `snapshot_frequency`, which has no effect."""


class DeltaChannel(BaseChannel[Value, Any]):
    """A channel that calls its reducer once per superstep, with the list of all writes.

    The value starts as `typ()`. An Overwrite replaces it; one of None resets it to `typ()`. This channel
    exists for graphs that name it. It is not needed to store deltas: every list with a reducer is stored so.

    Attributes:
        reducer: called as `reducer(value, [written, ...])`. Its result must not depend on how writes are
            distributed over supersteps.
        snapshot_frequency: has no effect. A snapshot is due when the deltas outweigh the last one.
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
        """Make a channel from a reducer that takes a list of writes.

        Args:
            typ: type of the value; default: the type in the state's annotation, else list.
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
        return value  # type: ignore[no-any-return]  # the reducer is trusted to return a Value

    def is_available(self) -> bool:
        return self._current() is not MISSING

    def checkpoint(self) -> Value | Missing:
        return self.value

    def from_checkpoint(self, stored: Any) -> Self:
        channel = type(self)(self.reducer, self.typ, snapshot_frequency=self.snapshot_frequency, key=self.key)
        channel.value = MISSING if stored is None else stored
        return channel

    def _current(self) -> Any:
        """Return the value, or the initial value if nothing was written yet."""
        return self._start() if self.value is MISSING else self.value

    def _start(self) -> Any:
        return initial_value(list if self.typ is None else self.typ)

    def _reduce(self, values: list[Any]) -> Any:
        current = self._current()
        # A reducer may change its left argument in place: it gets a copy.
        reduced = self.reducer(None if current is MISSING else shallow_copy(current), values)
        # The written object belongs to the node, which may still change it: keep a copy.
        return shallow_copy(reduced) if any(reduced is value for value in values) else reduced
