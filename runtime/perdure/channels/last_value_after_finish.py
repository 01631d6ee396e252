"""The channel of a value that is held back until nothing else is left to do: what starts a deferred node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Self

from perdure.channels.base import BaseChannel, Value
from perdure.constants import MISSING, Missing
from perdure.errors import EmptyChannelError

FINISHED: Final = "__finished__"
"""By this key the stored form of a channel that waits is known from that of one that does not."""


class LastValueAfterFinish(BaseChannel[Value, Value]):
    """Holds the value written last, and shows it only when nothing else is scheduled, until it is consumed.

    It loads what a channel that does not wait has stored, and shows that at once: what it stands for was
    about to happen. The other way round, see `released`.

    Attributes:
        finished: whether the value is shown.
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
            raise EmptyChannelError(f"Key {self.key!r} shows its value only when nothing else is left to do.")
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
    """What a channel that does not wait loads of what one that does has stored: the value."""
    return stored["value"] if _waits(stored) else stored


def _waits(stored: Any) -> bool:
    return isinstance(stored, dict) and stored.keys() == {"value", FINISHED}
