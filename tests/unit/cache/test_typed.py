"""Typed bytes of values: shared by equal values of the same type, and by no others."""

from __future__ import annotations

import enum
import subprocess
import sys
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from perdure.cache.typed import TypedEncoder, is_found_by_name
from perdure.checkpoint.serde.refusals import RefusedError
from perdure.data import Overwrite, Send
from perdure.testing import exactly_equal


def encoded(value: Any) -> bytes:
    return TypedEncoder().encode(value)


KEYS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1, 2),
    st.floats(width=16),
    st.text("ab", max_size=2),
    st.binary(max_size=1),
)
SCALARS = st.one_of(
    KEYS,
    st.integers(),
    st.text(max_size=3),
    st.complex_numbers(),
    st.decimals(allow_nan=False, allow_infinity=False, places=1),
    st.sampled_from([date(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC), timedelta(1), UUID(int=1)]),
    st.sampled_from([PurePosixPath("a"), Decimal(1), Decimal("1.0"), "\ud800", 2**70, {}, [], ()]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(KEYS, inner, max_size=3),
        st.sets(KEYS, max_size=3),
        st.frozensets(KEYS, max_size=3),
        st.builds(Send, st.sampled_from(["a", "b"]), inner),
        st.builds(Overwrite, inner),
    ),
    max_leaves=6,
)


@given(VALUES, VALUES)
def test_two_values_share_their_bytes_only_if_they_are_exactly_equal(left: Any, right: Any) -> None:
    assert (encoded(left) == encoded(right)) == exactly_equal(left, right)


def _other_type(value: Any) -> Any:
    """Return an almost equal value: one part has another type, if there is one to change."""
    match value:
        case bool():
            return int(value)
        case int() if abs(value) < 2**53:
            return float(value)
        case str():
            return value.encode("utf-8", "surrogatepass")
        case list():
            return tuple(value)
        case tuple():
            return list(value)
        case set():
            return frozenset(value)
        case dict() if value:
            first = next(iter(value))
            return {**value, first: _other_type(value[first])}
    return [value]


@given(VALUES)
def test_a_part_of_another_type_makes_other_bytes(value: Any) -> None:
    assert encoded(value) != encoded(_other_type(value))


@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_the_order_of_a_dict_does_not_count(value: dict[Any, Any]) -> None:
    assert encoded(dict(reversed(value.items()))) == encoded(value)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((1,), [1]),
        (1, True),
        (1, 1.0),
        (0, False),
        (0.0, -0.0),
        ("1", 1),
        (b"1", "1"),
        ({1}, frozenset({1})),
        ({}, []),
        (None, False),
        ([[], []], [[[]]]),
        (["ab"], ["a", "b"]),
        ({"a": None}, {}),
        ({1: 2}, {True: 2}),
        ({"1": 2}, {1: 2}),
        ({"$perdure": ["tuple", [1]]}, (1,)),
    ],
    ids=repr,
)
def test_lookalikes_are_told_apart(left: Any, right: Any) -> None:
    assert encoded(left) != encoded(right)
    assert encoded({"key": [left]}) != encoded({"key": [right]})


@dataclass
class Point:
    x: Any
    y: Any = 0
    seen: list[Any] = field(default_factory=list, compare=False)


@dataclass(frozen=True, slots=True)
class Frozen:
    x: Any
    y: Any = 0


class Pair(NamedTuple):
    x: Any
    y: Any = 0


class Model(BaseModel):
    x: Any = None
    y: Any = None


class Model2(Model):
    pass


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Size(enum.IntEnum):
    RED = 1


class Access(enum.Flag):
    READ = 1
    WRITE = 2


DIFFERENT: list[Any] = [
    *(kind(1) for kind in (Point, Frozen, Pair)),
    *(kind((1,)) for kind in (Point, Frozen, Pair)),
    *(kind([1]) for kind in (Point, Frozen, Pair)),
    *(kind(1, 1) for kind in (Point, Frozen, Pair)),
    Point(1, seen=[1]),
    Model(x=1),
    Model(x=(1,)),
    Model(x=1, y=None),  # set, which a node that returns the model writes
    Model2(x=1),
    *Color,
    *Size,
    *(Access(n) for n in range(4)),
    (1, 0),
    {"x": 1, "y": 0, "seen": []},
    {"x": 1, "y": 0},
    {"x": 1},
    "RED",
    1,
]


def test_values_of_classes_are_told_apart_by_class_and_fields() -> None:
    assert len({encoded(value) for value in DIFFERENT}) == len(DIFFERENT)


@pytest.mark.parametrize("make", [lambda: Point((1,), [2]), lambda: Model(x={1}), lambda: Pair(Color.RED)])
def test_values_of_classes_share_their_bytes_if_class_and_fields_are_equal(make: Any) -> None:
    encoder = TypedEncoder()
    assert encoder.encode({"state": make()}) == encoded({"state": make()})
    assert not encoder.private


def test_classes_of_one_name_are_told_apart_in_this_process_and_known_in_no_other() -> None:
    def make() -> type:
        @dataclass
        class Local:
            x: int

        return Local

    one, other = make(), make()
    encoder = TypedEncoder()
    assert encoder.encode(one(1)) == encoder.encode(one(1))
    assert encoded(one(1)) != encoded(other(1))
    assert encoder.private


class Text(str):
    __slots__ = ()


class Sum(int):
    pass


@dataclass
class Listed(list[int]):
    x: int = 0


class Plain:
    pass


@pytest.mark.parametrize(
    "value",
    [Text("a"), Sum(1), Listed(), Plain(), object(), deque([1]), bytearray(b"1"), len, Plain],
    ids=repr,
)
def test_what_may_hold_more_than_is_seen_is_refused_with_its_place(value: Any) -> None:
    with pytest.raises(RefusedError) as refused:
        encoded({"items": [1, (value,)]})
    assert 'at ["items"][1][0] has type' in str(refused.value)


def test_a_field_that_is_refused_is_named() -> None:
    with pytest.raises(RefusedError, match=r'at \["point"\]\.y has type'):
        encoded({"point": Point(1, object())})


def test_a_tuple_with_attributes_of_its_own_is_refused() -> None:
    class More(Pair):
        pass

    value = More(1)
    value.note = 1  # type: ignore[attr-defined]
    with pytest.raises(RefusedError, match="More"):
        encoded(value)


def test_what_contains_itself_is_refused() -> None:
    value: list[Any] = [(1,)]
    value.append(value)
    with pytest.raises(RefusedError, match="nested too deeply"):
        encoded(value)


def test_a_thing_is_found_by_name_only_if_it_is_what_its_module_has_there() -> None:
    class Local:
        pass

    assert is_found_by_name(Point)
    assert is_found_by_name(len)
    assert not is_found_by_name(Local)
    assert not is_found_by_name(Plain())


PROGRAM = """
from hashlib import blake2b
from perdure.cache.identity import CodeEncoder
from perdure.cache.typed import TypedEncoder
from tests.unit.cache import test_typed as t

def make(words, *rest):
    def node(state):
        return state["x"] in {"one", "two", "three"} and [words for word in words]
    return node

values = [{"b": {"x", "y", "z"}, "a": frozenset("abc"), 1: (1,), "p": t.Point({"q", "r"}), "m": t.Model(x=1)}]
codes = [make({"one", "two"}), make, t.Point, t.encoded, t.Pair(t.Color.RED)]
for encoder, things in ((TypedEncoder(), values), (CodeEncoder(), codes)):
    for thing in things:
        print(blake2b(encoder.encode(thing)).hexdigest(), encoder.private)
"""


def test_other_processes_make_the_same_bytes_whatever_their_hash_seed() -> None:
    said = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(path or "." for path in sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert said[0] == said[1]
    assert said[0].count("False") == 6
