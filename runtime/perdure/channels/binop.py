"""The channel for a key with a reducer, and the recognition of Overwrites."""

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
"""Operators and their in-place forms, which give equal results on a copy. `_fold_in_place` uses them."""

_BUILTIN_CONTAINERS: Final = frozenset({list, dict, set, bytearray, deque})


def unwrap_overwrite(write: Any) -> Any:
    """Return the value of an Overwrite, or MISSING for an ordinary write.

    An Overwrite that came through JSON is `{"__overwrite__": value}` or
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
    """Return the value of the one Overwrite among a superstep's writes to `key`, or MISSING.

    Raises:
        InvalidUpdateError: there are several Overwrites.
    """
    found: Any = MISSING
    for write in values:
        if isinstance(write, (Overwrite, dict)):
            replacement = unwrap_overwrite(write)
            if replacement is MISSING:
                continue
            if found is not MISSING:
                raise InvalidUpdateError(
                    f"At key {key!r}: Can receive only one Overwrite per step: the order of two would decide "
                    "the result. Let one node overwrite, and the others write plain values."
                )
            found = replacement
    return found


class BinaryOperatorAggregate(BaseChannel[Value, Value | Overwrite]):
    """A channel that folds every written value into its value with a reducer.

    The value starts as `typ()`. If that call fails, the channel starts empty and the first write becomes
    its value. An Overwrite replaces the value, and all other writes of its superstep are dropped.

    Attributes:
        operator: the reducer, called as `operator(value, written)`.
        default: factory of the initial value, instead of `typ`. If it returns MISSING, the channel starts
            empty.
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
        # Compared one by one: a callable object need not be hashable.
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
            # A reducer may change its left argument in place: it gets a copy.
            reduced = reducer(shallow_copy(left), value)
            # The written object belongs to the node, which may still change it: keep a copy.
            left = shallow_copy(value) if reduced is value else reduced
        return left


def _fold_in_place(in_place: Callable[[Any, Any], Any], left: Any, values: Sequence[Any]) -> Any:
    """Fold values into one copy of `left`, instead of one copy per value, which would be quadratic.

    Correct only if `left` and all values have exactly the same builtin container type: `list + tuple` is an
    error, but extending a list by a tuple is not.
    """
    folded = shallow_copy(left)
    for value in values:
        folded = in_place(folded, value)
    return folded


def initial_value(typ: Any) -> Any:
    """Return the empty value of a type, or MISSING if the type cannot be called without arguments."""
    if get_origin(typ) is Annotated:
        typ = typ.__origin__
    origin = get_origin(typ) or typ
    try:
        return _CONCRETE.get(origin, origin)()
    except Exception:  # A type may raise anything. It then has no initial value.
        return MISSING


def same_reducer(one: Callable[[Any, Any], Any], other: Callable[[Any, Any], Any]) -> bool:
    """Return True if two reducers are equal, or if one is a lambda.

    A schema that is evaluated twice makes two lambdas of one, so lambdas cannot be told apart.
    """
    return "<lambda>" in (getattr(one, "__name__", None), getattr(other, "__name__", None)) or one == other
