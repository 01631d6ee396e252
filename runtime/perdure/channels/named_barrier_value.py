"""The channel of a join: an edge from several nodes to one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Self

from perdure.channels.base import BaseChannel
from perdure.constants import MISSING, Missing
from perdure.errors import EmptyChannelError, InvalidUpdateError


class NamedBarrierValue(BaseChannel[None, str]):
    """A barrier that becomes available, with the value None, once every name has been written.

    Consuming it starts it again.

    Attributes:
        names: the names to wait for.
        seen: the names that were written since the barrier was last consumed.
    """

    __slots__ = ("names", "seen")

    seen: set[str]

    def __init__(self, typ: Any, names: AbstractSet[str], *, key: str = "") -> None:
        super().__init__(typ, key)
        self.names = frozenset(names)
        self.seen = set()

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, NamedBarrierValue) and type(other) is type(self) and self.names == other.names
        )

    __hash__ = BaseChannel.__hash__

    def update(self, values: Sequence[str]) -> bool:
        for value in values:
            if value not in self.names:
                raise InvalidUpdateError(
                    f"At key {self.key!r}: the barrier does not wait for {value!r}. "
                    f"Write one of {sorted(self.names)}."
                )
        before = len(self.seen)
        self.seen.update(values)
        return len(self.seen) > before

    def get(self) -> None:
        if self.seen != self.names:
            missing = sorted(self.names - self.seen)
            raise EmptyChannelError(f"Key {self.key!r} has no value: the barrier still waits for {missing}.")

    def is_available(self) -> bool:
        return self.seen == self.names

    def consume(self) -> bool:
        if self.seen != self.names:
            return False
        self.seen = set()
        return True

    def checkpoint(self) -> list[str] | Missing:
        return sorted(self.seen) or MISSING

    def from_checkpoint(self, stored: Any) -> Self:
        channel = type(self)(self.typ, self.names, key=self.key)
        if stored is not MISSING:
            # Drop names that the barrier no longer waits for: they would keep it shut for ever.
            channel.seen = set(self.names.intersection(arrived(stored)))
        return channel


def arrived(stored: Any) -> Iterable[str]:
    """Return the names that a stored barrier has seen, deferred or not."""
    names: Iterable[str] = stored["names"] if isinstance(stored, dict) else stored
    return names
