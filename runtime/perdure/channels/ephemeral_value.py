"""The channel for a value that only the next superstep sees, such as the input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from perdure.channels.base import BaseChannel, Value
from perdure.constants import MISSING, Missing
from perdure.errors import EmptyChannelError, InvalidUpdateError


class EphemeralValue(BaseChannel[Value, Value]):
    """A channel that holds its value for one superstep. A superstep that does not write to it empties it.

    Attributes:
        guard: if True, several writes in one superstep are an error; if False, the last one counts.
    """

    __slots__ = ("guard", "value")

    transient: ClassVar[bool] = True
    value: Value | Missing

    def __init__(self, typ: Any, guard: bool = True, *, key: str = "") -> None:
        super().__init__(typ, key)
        self.guard = guard
        self.value = MISSING

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EphemeralValue) and self.guard == other.guard

    __hash__ = BaseChannel.__hash__

    def update(self, values: Sequence[Value]) -> bool:
        if values:
            if self.guard and len(values) > 1:
                raise InvalidUpdateError(
                    f"At key {self.key!r}: EphemeralValue(guard=True) can receive only one value per step, "
                    f"but {len(values)} were written. To keep the last one, set guard=False."
                )
            self.value = values[-1]
            return True
        if self.value is MISSING:
            return False
        self.value = MISSING
        return True

    def get(self) -> Value:
        value = self.value
        if value is MISSING:
            raise EmptyChannelError(f"Key {self.key!r} has no value: the last superstep did not write to it.")
        return value

    def is_available(self) -> bool:
        return self.value is not MISSING

    def checkpoint(self) -> Value | Missing:
        return self.value

    def from_checkpoint(self, stored: Any) -> Self:
        channel = type(self)(self.typ, self.guard, key=self.key)
        channel.value = stored
        return channel
