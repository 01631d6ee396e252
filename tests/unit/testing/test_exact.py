"""Equality that tells apart what `==` does not."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from perdure.data import Overwrite, Send
from perdure.testing.exact import exactly_equal

NAN = float("nan")
BERLIN, PARIS = ZoneInfo("Europe/Berlin"), ZoneInfo("Europe/Paris")
AT = datetime(2025, 7, 1, tzinfo=UTC)


@dataclass
class Point:
    x: Any


SAME: list[tuple[Any, Any]] = [
    (1, 1),
    (NAN, float("nan")),
    (complex(0, NAN), complex(0, NAN)),
    ({"a": 1, "b": NAN}, {"b": NAN, "a": 1}),
    ({1, "a"}, {"a", 1}),
    ({(NAN,)}, {(NAN,)}),
    (Decimal("sNaN1"), Decimal("sNaN1")),
    (Point([NAN]), Point([NAN])),
    (AT.replace(tzinfo=BERLIN), AT.replace(tzinfo=BERLIN)),
]

DIFFERENT: list[tuple[Any, Any]] = [
    (1, 1.0),
    (1, True),
    (0, False),
    (-0.0, 0.0),
    (NAN, 0.0),
    (1.0, NAN),
    (complex(0.0, -0.0), complex(0.0, 0.0)),
    (complex(-0.0, 0.0), complex(0.0, 0.0)),
    ((1,), [1]),
    ([1, 2], [1]),
    ([1], [1, 2]),
    ([1, [2]], [1, [2.0]]),
    ({1}, frozenset({1})),
    ({1}, {True}),
    ({1, 2}, {1}),
    ({1}, {1, 2}),
    ({"a": 1}, {"a": 1.0}),
    ({1: "a"}, {True: "a"}),
    ({"a": 1}, {"a": 1, "b": 2}),
    ({"a": 1, "b": 2}, {"a": 1}),
    (Decimal(1), Decimal("1.0")),
    (Decimal(0), Decimal("-0")),
    (PurePosixPath("a"), PureWindowsPath("a")),
    (Point(1), Point(1.0)),
    (Send("a", (1,)), Send("a", [1])),
    (Send("a", 1), Send("b", 1)),
    (Overwrite(1), Overwrite(True)),
    (AT, AT.replace(fold=1)),
    (AT, AT.replace(tzinfo=None)),
    (AT, AT.replace(tzinfo=timezone(timedelta(0), "GMT"))),
    (AT, AT + timedelta(microseconds=1)),
    (AT.astimezone(BERLIN), AT.astimezone(PARIS)),
    (AT.astimezone(BERLIN), AT.astimezone(timezone(timedelta(hours=2)))),
    (AT.replace(tzinfo=timezone(timedelta(hours=1))), AT.replace(tzinfo=timezone(timedelta(hours=2)))),
    (time(1, tzinfo=UTC), time(1)),
    ("a", "b"),
    (None, False),
]


@pytest.mark.parametrize(("left", "right"), SAME, ids=ascii)
def test_same(left: Any, right: Any) -> None:
    assert exactly_equal(left, right)
    assert exactly_equal([left], [right])


@pytest.mark.parametrize(("left", "right"), DIFFERENT, ids=ascii)
def test_different(left: Any, right: Any) -> None:
    assert not exactly_equal(left, right)
    assert not exactly_equal(right, left)
    assert not exactly_equal({"in": left}, {"in": right})
