"""The channel of a join that leads to a deferred node."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Any, Self

from perdure.channels.last_value_after_finish import FINISHED
from perdure.channels.named_barrier_value import NamedBarrierValue
from perdure.constants import MISSING, Missing
from perdure.errors import EmptyChannelError


class NamedBarrierValueAfterFinish(NamedBarrierValue):
    """A NamedBarrierValue that becomes available only when no other task is scheduled, either.

    Each of the two can load the other's stored form. A complete barrier that did not wait is available at
    once, because the task that it triggers was due.

    Attributes:
        finished: True if the barrier is available.
    """

    __slots__ = ("finished",)

    def __init__(self, typ: Any, names: AbstractSet[str], *, key: str = "") -> None:
        super().__init__(typ, names, key=key)
        self.finished = False

    def get(self) -> None:
        super().get()
        if not self.finished:
            raise EmptyChannelError(
                f"Key {self.key!r} has no value yet: it is available only when no other task is scheduled."
            )

    def is_available(self) -> bool:
        return self.finished

    def consume(self) -> bool:
        if not self.finished:
            return False
        self.finished = False
        return super().consume()

    def finish(self) -> bool:
        if self.finished or self.seen != self.names:
            return False
        self.finished = True
        return True

    def checkpoint(self) -> dict[str, Any] | Missing:  # type: ignore[override]  # the dict tells it apart
        return {"names": sorted(self.seen), FINISHED: self.finished} if self.seen else MISSING

    def from_checkpoint(self, stored: Any) -> Self:
        channel = super().from_checkpoint(stored)
        complete = channel.seen == channel.names
        channel.finished = complete and (stored[FINISHED] if isinstance(stored, dict) else True)
        return channel
