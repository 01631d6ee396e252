"""Equality as storage owes it: of the same type, down to the sign of zero."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Set
from datetime import datetime, time, timezone, tzinfo
from decimal import Decimal
from math import copysign, isnan
from typing import Any
from zoneinfo import ZoneInfo


def exactly_equal(left: Any, right: Any) -> bool:
    """Return whether two values are equal and of the same type, and everything in them is, too.

    Unlike `==` it tells 1 from 1.0 and True, -0.0 from 0.0, Decimal("1") from Decimal("1.0"), and
    the folds and zones of times; and it finds nan equal to nan. The order of dicts does not count.
    """
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return _equal_floats(left, right)
    if isinstance(left, complex):
        return _equal_floats(left.real, right.real) and _equal_floats(left.imag, right.imag)
    if isinstance(left, Mapping):
        return _equal_in_any_order(left.items(), right.items())
    if isinstance(left, Set):
        return _equal_in_any_order(left, right)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(exactly_equal, left, right))
    if dataclasses.is_dataclass(left):
        names = [field.name for field in dataclasses.fields(left)]
        return all(exactly_equal(getattr(left, name), getattr(right, name)) for name in names)
    return _equal_scalars(left, right)


def _equal_scalars(left: Any, right: Any) -> bool:
    if isinstance(left, Decimal):
        return bool(left.as_tuple() == right.as_tuple())
    if isinstance(left, datetime | time):
        return (
            left.replace(tzinfo=None) == right.replace(tzinfo=None)
            and left.fold == right.fold
            and _equal_zones(left.tzinfo, right.tzinfo)
        )
    return bool(left == right)


def _equal_floats(left: float, right: float) -> bool:
    if isnan(left) or isnan(right):
        return isnan(left) and isnan(right)
    return left == right and copysign(1, left) == copysign(1, right)


def _equal_zones(left: tzinfo | None, right: tzinfo | None) -> bool:
    if type(left) is not type(right):
        return False
    if isinstance(left, ZoneInfo):
        return left is right
    if isinstance(left, timezone) and isinstance(right, timezone):
        return left == right and left.tzname(None) == right.tzname(None)
    return bool(left == right)


def _equal_in_any_order(left: Iterable[Any], right: Iterable[Any]) -> bool:
    remaining = list(right)
    for item in left:
        for index, other in enumerate(remaining):
            if exactly_equal(item, other):
                del remaining[index]
                break
        else:
            return False
    return not remaining
