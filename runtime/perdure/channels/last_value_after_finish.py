"""The channel that triggers a deferred node: its value is hidden until no other task is scheduled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Self

from perdure.channels.base import BaseChannel, Value
from perdure.constants import MISSING, Missing
from perdure.errors import EmptyChannelError

FINISHED: Final = "__finished__"
"""The key that tells the stored form of this channel from that of a LastValue."""


class LastValueAfterFinish(BaseChannel[Value, Value]):
    """A channel whose value becomes available when no other task is scheduled, until it is consumed.

    It can load the stored value of a channel that does not wait. That value is available at once, because
    the task that it triggers was due. `released` converts in the other direction.

    Attributes:
        finished: True if the value is available.
    """

    __slots__ = ("finished", "value")

    value: Value | Missing

    def __init__(self, typ: Any, key: str = "") -> None:
        super().__init__(typ, key)
        self.value = MISSING
        self.finished = False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LastValueAfterFinish)

    __hash__ = BaseChannel.__hash__

    def update(self, values: Sequence[Value]) -> bool:
        if not values:
            return False
        self.value = values[-1]
        self.finished = False
        return True

    def get(self) -> Value:
        value = self.value
        if value is MISSING:
            raise EmptyChannelError(
                f"Key {self.key!r} has no value: nothing has been written to it since it was last consumed."
            )
        if not self.finished:
            raise EmptyChannelError(
                f"Key {self.key!r} has no value yet: it is available only when no other task is scheduled."
            )
        return value

    def is_available(self) -> bool:
        return self.finished

    def consume(self) -> bool:
        if not self.finished:
            return False
        self.value = MISSING
        self.finished = False
        return True

    def finish(self) -> bool:
        if self.finished or self.value is MISSING:
            return False
        self.finished = True
        return True

    def checkpoint(self) -> dict[str, Any] | Missing:
        return MISSING if self.value is MISSING else {"value": self.value, FINISHED: self.finished}

    def from_checkpoint(self, stored: Any) -> Self:
        channel = type(self)(self.typ, self.key)
        if _waits(stored):
            channel.value, channel.finished = stored["value"], stored[FINISHED]
        elif stored is not MISSING:
            channel.value, channel.finished = stored, True
        return channel


def released(stored: Any) -> Any:
    """Convert the stored form of a waiting channel to that of one that does not wait: the bare value."""
    return stored["value"] if _waits(stored) else stored


def _waits(stored: Any) -> bool:
    return isinstance(stored, dict) and stored.keys() == {"value", FINISHED}
