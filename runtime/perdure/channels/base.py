"""The contract of channels: named cells of the state that merge the writes of a superstep."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, Self

from typing_extensions import TypeVar

Value = TypeVar("Value", default=Any)
Update = TypeVar("Update", default=Any)

_COPIERS: dict[type, Callable[[Any], Any]] = {
    list: list.copy,
    dict: dict.copy,
    set: set.copy,
    bytearray: bytearray.copy,
    deque: deque.copy,
}
_MUTABLE_CONTAINERS = tuple(_COPIERS)


def is_container(value: object) -> bool:
    """Return True for an instance of a builtin mutable container or of a subclass."""
    return isinstance(value, _MUTABLE_CONTAINERS)


def shallow_copy(value: Any) -> Any:
    """Return a shallow copy of a mutable container, and any other value as it is.

    The engine hands out copies, so that code which changes a value in place changes only its own.
    """
    copier = _COPIERS.get(type(value))
    if copier is not None:
        return copier(value)
    return copy.copy(value) if isinstance(value, _MUTABLE_CONTAINERS) else value


class BaseChannel(ABC, Generic[Value, Update]):
    """A cell of the state.

    A channel belongs to one run. The engine calls `update` once per superstep, with all of the superstep's
    writes in merge order.

    Attributes:
        typ: declared type of the value.
        key: name of the channel in the graph; errors contain it.
        transient: True if a superstep that writes nothing to the channel empties it.
    """

    __slots__ = ("key", "typ")

    transient: ClassVar[bool] = False

    def __init__(self, typ: Any, key: str = "") -> None:
        self.typ = typ
        self.key = key

    @abstractmethod
    def update(self, values: Sequence[Update]) -> bool:
        """Merge a superstep's writes, `[]` if there are none. Return True if the channel changed."""

    @abstractmethod
    def get(self) -> Value:
        """Return the value. Raises EmptyChannelError if there is none."""

    @abstractmethod
    def is_available(self) -> bool:
        """Return True if `get` would return a value."""

    def consume(self) -> bool:
        """Take note that a task triggered by this channel has run. Return True if the channel changed."""
        return False

    def finish(self) -> bool:
        """Take note that no other task is scheduled. Return True if the channel changed."""
        return False

    @abstractmethod
    def checkpoint(self) -> Any:
        """Return the value to store, or MISSING if there is none.

        The channel must not change the returned object later.
        """

    @abstractmethod
    def from_checkpoint(self, stored: Any) -> Self:
        """Make a new channel of this kind from a stored value. MISSING makes an empty one."""

    def copy(self) -> Self:
        """Make a new channel with the same value. Updating one does not change the other."""
        return self.from_checkpoint(self.checkpoint())
