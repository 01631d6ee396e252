"""The channel of a key with a reducer, and how an Overwrite is recognised."""

from __future__ import annotations

import operator as op
from collections import deque
from collections.abc import (
    Callable,
    Mapping,
    MutableMapping,
    MutableSequence,
    MutableSet,
    Sequence,
)
from collections.abc import Set as AbstractSet
from typing import Annotated, Any, Final, Self, get_origin

from perdure.channels.base import BaseChannel, Value, shallow_copy
from perdure.constants import MISSING, Missing
from perdure.data import Overwrite
from perdure.errors import EmptyChannelError, InvalidUpdateError

_CONCRETE: Final[dict[Any, type]] = {
    Sequence: list,
    MutableSequence: list,
    AbstractSet: set,
    MutableSet: set,
    Mapping: dict,
    MutableMapping: dict,
}

_IN_PLACE: Final[tuple[tuple[Any, Callable[[Any, Any], Any]], ...]] = (
    (op.add, op.iadd),
    (op.or_, op.ior),
    (op.and_, op.iand),
    (op.sub, op.isub),
    (op.xor, op.ixor),
)
"""Operators whose in-place form, on a copy, gives what the plain form gives: see `_fold_in_place`."""

_BUILTIN_CONTAINERS: Final = frozenset({list, dict, set, bytearray, deque})


def unwrap_overwrite(write: Any) -> Any:
    """What `write` wants to put in place of a channel's value; MISSING if it is an ordinary value.

    An Overwrite may have come through JSON: as `{"__overwrite__": value}`, or as
    `{"type": "__overwrite__", "value": value}`.
    """
    if isinstance(write, Overwrite):
        return write.value
    if isinstance(write, dict):
        if len(write) == 1:
            return write.get("__overwrite__", MISSING)
        kind = write.get("type")
        if isinstance(kind, str) and kind == "__overwrite__":
            return write.get("value", MISSING)
    return MISSING


def replacement_among(key: str, values: Sequence[Any]) -> Any:
    """The value of the Overwrite among a superstep's writes to `key`, MISSING if there is none."""
    found: Any = MISSING
    for write in values:
        if isinstance(write, (Overwrite, dict)):
            replacement = unwrap_overwrite(write)
            if replacement is MISSING:
                continue
            if found is not MISSING:
                raise InvalidUpdateError(
                    f"At key {key!r}: Can receive only one Overwrite per step, because the order of two "
                    "would decide. Let one node overwrite, or have the others write plain values."
                )
            found = replacement
    return found


class BinaryOperatorAggregate(BaseChannel[Value, Value | Overwrite]):
    """Holds what a reducer makes of all values written so far.

    It starts from `typ()`. Where that fails it starts empty, and the first value is taken as it is. An
    Overwrite replaces the value, and every other write of its superstep is dropped.

    Attributes:
        operator: the reducer, called as `operator(value so far, value written)`.
        default: makes what the channel starts from in place of `typ()`; MISSING: it starts empty.
    """

    __slots__ = ("_in_place", "default", "operator", "value")

    value: Value | Missing

    def __init__(
        self,
        typ: Any,
        operator: Callable[[Any, Any], Any],
        *,
        key: str = "",
        default: Callable[[], Any] | None = None,
    ) -> None:
        super().__init__(typ, key)
        self.operator = operator
        self.default = default
        # Not looked up by hash: a callable object need not have one.
        self._in_place = next((in_place for plain, in_place in _IN_PLACE if plain is operator), None)
        self.value = initial_value(typ) if default is None else default()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BinaryOperatorAggregate):
            return False
        return same_reducer(self.operator, other.operator)

    __hash__ = BaseChannel.__hash__

    def update(self, values: Sequence[Value | Overwrite]) -> bool:
        if not values:
            return False
        replacement = replacement_among(self.key, values)
        self.value = self._reduce(values) if replacement is MISSING else shallow_copy(replacement)
        return True

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
        channel = type(self)(self.typ, self.operator, key=self.key)
        channel.default = self.default
        if stored is not MISSING:
            channel.value = stored
        elif self.default is not None:
            channel.value = self.default()
        return channel

    def _reduce(self, values: Sequence[Any]) -> Any:
        left: Any = self.value
        if left is MISSING:
            left, values = shallow_copy(values[0]), values[1:]
        if self._in_place is not None and type(left) in _BUILTIN_CONTAINERS:
            kind = type(left)
            if all(type(value) is kind for value in values):
                return _fold_in_place(self._in_place, left, values)
        reducer = self.operator
        for value in values:
            # A reducer that changes its left side in place changes only this copy.
            reduced = reducer(shallow_copy(left), value)
            # What a node wrote stays the node's, who may go on changing it.
            left = shallow_copy(value) if reduced is value else reduced
        return left


def _fold_in_place(in_place: Callable[[Any, Any], Any], left: Any, values: Sequence[Any]) -> Any:
    """One copy for the whole superstep instead of one per value, so that many writes are not quadratic.

    Holds for builtin containers of exactly one type only: a list plus a tuple is an error, a list
    extended by a tuple is not.
    """
    folded = shallow_copy(left)
    for value in values:
        folded = in_place(folded, value)
    return folded


def initial_value(typ: Any) -> Any:
    """What a reduced key of this type starts from; MISSING where the type has nothing to start from."""
    if get_origin(typ) is Annotated:
        typ = typ.__origin__
    origin = get_origin(typ) or typ
    try:
        return _CONCRETE.get(origin, origin)()
    except Exception:  # Whatever the type says no with: there is no initial value then.
        return MISSING


def same_reducer(one: Callable[[Any, Any], Any], other: Callable[[Any, Any], Any]) -> bool:
    """Whether two schemas mean the same: one that is evaluated twice has two lambdas where it means one."""
    return "<lambda>" in (getattr(one, "__name__", None), getattr(other, "__name__", None)) or one == other
