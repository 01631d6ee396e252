"""The channel for a value that must not be stored, such as a connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from perdure.channels.base import BaseChannel, Value
from perdure.constants import MISSING, Missing
from perdure.errors import EmptyChannelError, InvalidUpdateError


class UntrackedValue(BaseChannel[Value, Value]):
    """A channel that holds the value written last and is never stored. A resumed run finds it empty.

    Attributes:
        guard: if True, several writes in one superstep are an error; if False, the last one counts.
    """

    __slots__ = ("guard", "value")

    value: Value | Missing

    def __init__(self, typ: Any, guard: bool = True, *, key: str = "") -> None:
        super().__init__(typ, key)
        self.guard = guard
        self.value = MISSING

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntrackedValue) and self.guard == other.guard

    __hash__ = BaseChannel.__hash__

    def update(self, values: Sequence[Value]) -> bool:
        if not values:
            return False
        if self.guard and len(values) > 1:
            raise InvalidUpdateError(
                f"At key {self.key!r}: UntrackedValue(guard=True) can receive only one value per step, but "
                f"{len(values)} were written. To keep the last one, set guard=False."
            )
        self.value = values[-1]
        return True

    def get(self) -> Value:
        value = self.value
        if value is MISSING:
            raise EmptyChannelError(
                f"Key {self.key!r} has no value: nothing has been written to it since this run started."
            )
        return value

    def is_available(self) -> bool:
        return self.value is not MISSING

    def checkpoint(self) -> Missing:
        return MISSING

    def from_checkpoint(self, stored: Any) -> Self:
        return type(self)(self.typ, self.guard, key=self.key)

    def copy(self) -> Self:
        # Copied directly: a checkpoint does not contain the value.
        channel = type(self)(self.typ, self.guard, key=self.key)
        channel.value = self.value
        return channel
