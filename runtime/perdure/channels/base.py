"""What a channel is: one named cell of the state, and the rule by which a superstep's writes change it."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, Self, TypeVar

Value = TypeVar("Value")
Update = TypeVar("Update")

_COPIERS: dict[type, Callable[[Any], Any]] = {
    list: list.copy,
    dict: dict.copy,
    set: set.copy,
    bytearray: bytearray.copy,
    deque: deque.copy,
}
_MUTABLE_CONTAINERS = tuple(_COPIERS)


def is_container(value: object) -> bool:
    """Whether `value` is a builtin mutable container, or of a class derived from one."""
    return isinstance(value, _MUTABLE_CONTAINERS)


def shallow_copy(value: Any) -> Any:
    """`value` itself, or a shallow copy if it is a mutable container.

    What is handed out is copied so, and whoever changes it in place changes only their own copy.
    """
    copier = _COPIERS.get(type(value))
    if copier is not None:
        return copier(value)
    return copy.copy(value) if isinstance(value, _MUTABLE_CONTAINERS) else value


class BaseChannel(ABC, Generic[Value, Update]):
    """A cell of the state.

    A channel belongs to one run and is not shared. `update` is given all writes of a superstep, in
    the documented order, once.

    Attributes:
        typ: the declared type of the value.
        key: the name under which the graph holds the channel; errors name it.
        transient: whether a superstep that writes nothing to the channel empties it.
    """

    __slots__ = ("key", "typ")

    transient: ClassVar[bool] = False

    def __init__(self, typ: Any, key: str = "") -> None:
        self.typ = typ
        self.key = key

    @abstractmethod
    def update(self, values: Sequence[Update]) -> bool:
        """Take a superstep's writes; `[]` when there were none. Returns whether the channel changed."""

    @abstractmethod
    def get(self) -> Value:
        """The value. Raises EmptyChannelError where there is none."""

    @abstractmethod
    def is_available(self) -> bool:
        """Whether `get` would return."""

    def consume(self) -> bool:
        """A task that this channel triggered has run. Returns whether the channel changed."""
        return False

    def finish(self) -> bool:
        """Nothing else is scheduled. Returns whether the channel changed."""
        return False

    @abstractmethod
    def checkpoint(self) -> Any:
        """What to store: MISSING where there is nothing, never an object that the channel changes later."""

    @abstractmethod
    def from_checkpoint(self, stored: Any) -> Self:
        """A new channel like this one, holding what `checkpoint` returned; MISSING makes an empty one."""

    def copy(self) -> Self:
        """A new channel with the same value; updating either does not change the other."""
        return self.from_checkpoint(self.checkpoint())
