"""The channel for a key to which several nodes write equal values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from perdure.channels.base import BaseChannel, Value
from perdure.constants import MISSING, Missing
from perdure.errors import EmptyChannelError


class AnyValue(BaseChannel[Value, Value]):
    """A channel that holds one of the values written in the last superstep, for writers that agree."""

    __slots__ = ("value",)

    transient: ClassVar[bool] = True
    value: Value | Missing

    def __init__(self, typ: Any, key: str = "") -> None:
        super().__init__(typ, key)
        self.value = MISSING

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnyValue)

    __hash__ = BaseChannel.__hash__

    def update(self, values: Sequence[Value]) -> bool:
        if values:
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
        channel = type(self)(self.typ, self.key)
        channel.value = stored
        return channel
