"""Stored values come back equal and of the same type, down to the sign of zero."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import orjson
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from perdure.checkpoint.serde import JsonSerializer
from perdure.checkpoint.serde.json import exact_json
from perdure.checkpoint.serde.tags import MAX_LEVELS, TAG
from perdure.data import Overwrite, Send
from perdure.testing.exact import exactly_equal

SERDE = JsonSerializer()
BERLIN = ZoneInfo("Europe/Berlin")


def round_trip(value: Any) -> Any:
    return SERDE.loads(SERDE.dumps(value))


def nested(levels: int, innermost: Any = None) -> Any:
    value: Any = [] if innermost is None else [innermost]
    for _ in range(levels - 1):
        value = [value]
    return value


texts = st.text(st.characters(codec=None, exclude_categories=()), max_size=8)
zones = (
    st.none()
    | st.timezones()
    | st.just(UTC)
    | st.builds(timezone, st.timedeltas(-timedelta(1, -1), timedelta(1, -1)))
)
named_offsets = st.builds(timezone, st.just(timedelta(minutes=90)), texts)
json_leaves = st.none() | st.booleans() | st.integers() | st.floats() | texts
hashable_leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | texts
    | st.binary(max_size=8)
    | st.decimals(allow_nan=False)
    | st.uuids()
    | st.complex_numbers(allow_nan=False)
    | st.dates()
    | st.timedeltas()
    | st.sampled_from([PurePosixPath("a/b"), PureWindowsPath("C:\\a"), Path("x"), PurePosixPath("\udcff")])
)
leaves = (
    json_leaves
    | hashable_leaves
    | st.decimals()
    | st.complex_numbers()
    | st.builds(
        lambda at, zone, fold: at.replace(tzinfo=zone, fold=fold),
        st.datetimes(),
        zones,
        st.sampled_from([0, 1]),
    )
    | st.builds(
        lambda at, zone, fold: at.replace(tzinfo=zone, fold=fold),
        st.times(),
        named_offsets,
        st.sampled_from([0, 1]),
    )
)
keys = hashable_leaves | st.tuples(hashable_leaves, hashable_leaves) | st.just(TAG)


def containers(items: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return (
        st.lists(items, max_size=4)
        | st.dictionaries(texts | st.just(TAG), items, max_size=4)
        | st.dictionaries(keys, items, max_size=4)
        | st.lists(items, max_size=4).map(tuple)
        | st.sets(keys, max_size=4)
        | st.frozensets(keys, max_size=4)
        | st.builds(Send, texts, items)
        | st.builds(Overwrite, items)
    )


@given(st.recursive(leaves, containers, max_leaves=20))
def test_every_storable_value_comes_back_equal_and_of_the_same_type(value: Any) -> None:
    assert exactly_equal(round_trip(value), value)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**64 - 1)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda items: st.lists(items) | st.dictionaries(st.text(), items),
    )
)
def test_what_json_can_say_is_stored_as_plain_json(value: Any) -> None:
    plain = orjson.dumps(value)
    assume(f'"{TAG}"'.encode() not in plain)
    payload = SERDE.dumps(value)
    assert exact_json(value) == plain
    assert payload == plain
    assert exactly_equal(SERDE.loads(payload), value)


@given(st.recursive(leaves, containers, max_leaves=20))
def test_every_payload_is_json_text(value: Any) -> None:
    json.loads(SERDE.dumps(value), parse_constant=pytest.fail)


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        float("-inf"),
        -0.0,
        1.7e308,
        5e-324,
        2**53 + 1,
        2**63,
        2**64 - 1,
        2**64,
        -(2**63),
        -(2**63) - 1,
        10**40,
        -(10**40),
        "\ud800",
        "\ud83d\ude00",
        "a\x00b",
        {"\udfff": 1},
        {"\x00": "\x00"},
        [1, 1.0, True, "1", None],
        [1e308, 1e308],
        [1e308, 1e308, float("nan")],
        [float("inf"), float("-inf")],
        [1.5, float("inf"), "text"],
        complex(-0.0, float("nan")),
    ],
    ids=ascii,
)
def test_numbers_and_texts_at_the_edge(value: Any) -> None:
    assert exactly_equal(round_trip(value), value)
    assert exactly_equal(round_trip({"in": [value]}), {"in": [value]})


def test_an_int_with_more_digits_than_python_likes_to_print() -> None:
    assert round_trip(1 << 20_000) == 1 << 20_000


@pytest.mark.parametrize(
    "value",
    [
        (),
        (1, (2, [3, (4,)])),
        {(1, 2), (3, 4)},
        set(),
        frozenset({frozenset({1}), "a"}),
        {1: "int", "1": "str", None: "none", (1, 2): "tuple", False: "bool"},
        {1.0: "float"},
        b"",
        bytes(range(256)),
        datetime(2025, 10, 26, 2, 30, tzinfo=BERLIN, fold=1),
        datetime(2025, 10, 26, 2, 30, tzinfo=BERLIN, fold=0),
        datetime(2025, 10, 26, 2, 30, fold=1),  # noqa: DTZ001  # naive ones are stored too
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(2025, 1, 1, tzinfo=timezone(timedelta(hours=-5, microseconds=1), "EST")),
        date(9999, 12, 31),
        time(1, 2, 3, 4, tzinfo=UTC, fold=1),
        timedelta(days=-1, microseconds=1),
        timedelta.min,
        Decimal("1.10"),
        Decimal("-0E-20"),
        Decimal("sNaN123"),
        Decimal("-Infinity"),
        Decimal("1E+999999"),
        UUID(int=7),
        Path("a/../b"),
        PurePosixPath("/"),
        PureWindowsPath("//host/share/x"),
        Send("node", {"message": ("hi", {1})}),
        [Send("node", Send("inner", None)), Overwrite([Overwrite(b"x")])],
    ],
    ids=ascii,
)
def test_standard_types(value: Any) -> None:
    assert exactly_equal(round_trip(value), value)
    assert exactly_equal(round_trip([{"in": (value,)}]), [{"in": (value,)}])


def test_the_order_of_a_dict_is_kept() -> None:
    assert list(round_trip({"b": 1, "a": (2,)})) == ["b", "a"]
    assert list(round_trip({2: 1, 1: 2})) == [2, 1]


def test_fixed_offset_named_by_nobody_and_utc_are_the_ones_python_gives() -> None:
    assert round_trip(datetime(2025, 1, 1, tzinfo=UTC)).tzinfo is UTC
    assert round_trip(datetime(2025, 1, 1, tzinfo=BERLIN)).tzinfo is BERLIN


@pytest.mark.parametrize(
    "value",
    [
        {TAG: ["bytes", "AA=="]},
        {TAG: ["os.system", "true"]},
        {TAG: 1, "other": 2},
        [{"deep": {TAG: {TAG: None}}}],
        ({TAG: (1,)},),
        TAG,
        {"key": TAG},
        [TAG, {"key": '"$perdure"'}],
        {f"{TAG} ": ["bytes", "AA=="]},
    ],
    ids=repr,
)
def test_the_users_data_may_look_like_our_tags(value: Any) -> None:
    assert exactly_equal(round_trip(value), value)


def test_what_is_read_shares_nothing_with_what_was_written() -> None:
    value = {"list": [1], "tuple": ([2],)}
    copy = round_trip(value)
    copy["list"].append(3)
    copy["tuple"][0].append(3)
    assert value == {"list": [1], "tuple": ([2],)}


def test_as_deep_as_json_goes() -> None:
    assert exactly_equal(round_trip(nested(MAX_LEVELS)), nested(MAX_LEVELS))
    assert exactly_equal(round_trip(nested(MAX_LEVELS - 2, b"x")), nested(MAX_LEVELS - 2, b"x"))
    one_day = timedelta(1)
    assert exactly_equal(round_trip(nested(MAX_LEVELS - 3, one_day)), nested(MAX_LEVELS - 3, one_day))
    assert exactly_equal(round_trip(nested(MAX_LEVELS - 3, (1,))), nested(MAX_LEVELS - 3, (1,)))
    assert exactly_equal(
        round_trip(nested(MAX_LEVELS - 3, Overwrite(1))), nested(MAX_LEVELS - 3, Overwrite(1))
    )
    assert exactly_equal(round_trip(nested(MAX_LEVELS - 4, {1: 2})), nested(MAX_LEVELS - 4, {1: 2}))
