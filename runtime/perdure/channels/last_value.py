"""The channel for a key without a reducer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from perdure.channels.base import BaseChannel, Value
from perdure.constants import MISSING, Missing
from perdure.errors import EmptyChannelError, InvalidUpdateError


class LastValue(BaseChannel[Value, Value]):
    """A channel that holds the value written last. It accepts one write per superstep."""

    __slots__ = ("value",)

    value: Value | Missing

    def __init__(self, typ: Any, key: str = "") -> None:
        super().__init__(typ, key)
        self.value = MISSING

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LastValue)

    # All channels are hashed by identity. `Annotated[...]` is cached by hash and equality, so a hash by value
    # would hand out the metadata of an equal channel. An unhashable channel could not stand in an Optional.
    __hash__ = BaseChannel.__hash__

    def update(self, values: Sequence[Value]) -> bool:
        if len(values) == 1:
            self.value = values[0]
            return True
        if values:
            raise InvalidUpdateError(
                f"At key {self.key!r}: Can receive only one value per step, but {len(values)} were written. "
                "To combine them, annotate the key with a reducer: Annotated[<type>, <reducer>]."
            )
        return False

    def get(self) -> Value:
        value = self.value
        if value is MISSING:
            raise EmptyChannelError(f"Key {self.key!r} has no value: nothing has been written to it yet.")
        return value

    def is_available(self) -> bool:
        return self.value is not MISSING

    def checkpoint(self) -> Value | Missing:
        return self.value

    def from_checkpoint(self, stored: Any) -> Self:
        channel = type(self)(self.typ, self.key)
        channel.value = stored
        return channel
