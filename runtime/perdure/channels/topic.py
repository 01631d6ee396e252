"""The channel of a queue, such as the Sends for the next superstep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from perdure.channels.base import BaseChannel, Value
from perdure.constants import MISSING, Missing
from perdure.errors import EmptyChannelError


class Topic(BaseChannel[list[Value], Value | list[Value]]):
    """A channel that holds the list of values written. A written list adds its items.

    Attributes:
        accumulate: if True, values are never removed; if False, each superstep starts empty.
    """

    __slots__ = ("accumulate", "values")

    values: list[Value]

    def __init__(self, typ: Any, accumulate: bool = False, *, key: str = "") -> None:
        super().__init__(typ, key)
        self.accumulate = accumulate
        self.values = []

    @property
    def transient(self) -> bool:  # type: ignore[override]  # a class constant elsewhere
        return not self.accumulate

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Topic) and self.accumulate == other.accumulate

    __hash__ = BaseChannel.__hash__

    def update(self, values: Sequence[Value | list[Value]]) -> bool:
        cleared = False
        if not self.accumulate and self.values:
            self.values = []
            cleared = True
        before = len(self.values)
        for value in values:
            if isinstance(value, list):
                self.values.extend(value)
            else:
                self.values.append(value)
        return cleared or len(self.values) > before

    def get(self) -> list[Value]:
        if not self.values:
            raise EmptyChannelError(f"Key {self.key!r} has no value: nothing has been written to this topic.")
        return self.values.copy()

    def is_available(self) -> bool:
        return bool(self.values)

    def checkpoint(self) -> list[Value] | Missing:
        return self.values.copy() or MISSING

    def from_checkpoint(self, stored: Any) -> Self:
        channel = type(self)(self.typ, self.accumulate, key=self.key)
        if stored is not MISSING:
            channel.values = list(stored)
        return channel
