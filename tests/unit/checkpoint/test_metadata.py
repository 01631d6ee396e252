"""Metadata: as JSON text, refused, and compared with a filter."""

from __future__ import annotations

import enum
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.checkpoint.metadata import encode_metadata, metadata_matches
from perdure.errors import UnserializableValueError


class Color(enum.Enum):
    RED = "red"


jsonb_text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
jsonb = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | jsonb_text,
    lambda items: st.lists(items) | st.dictionaries(jsonb_text, items),
)


@given(st.dictionaries(jsonb_text, jsonb))
def test_metadata_of_json_types_is_stored_as_it_is(metadata: dict[str, Any]) -> None:
    assert encode_metadata(metadata) == orjson.dumps(metadata)


@pytest.mark.parametrize("text", ["\\u0000", "\\\\u0000", "u0000", '"\\u0000"'])
def test_text_that_looks_like_an_escaped_nul_is_stored(text: str) -> None:
    assert orjson.loads(encode_metadata({"text": text})) == {"text": text}


@pytest.mark.parametrize(
    "value",
    [
        "\0",
        "\\\0",
        "\\\\\0",
        ["a\0"],
        {"\0": 1},
        "\ud800",
        2**64,
        float("nan"),
        (1,),
        {1: 2},
        Color.RED,
        object(),
    ],
    ids=ascii,
)
def test_other_metadata_is_refused_naming_the_key(value: object) -> None:
    with pytest.raises(UnserializableValueError) as caught:
        encode_metadata({"fine": 1, "odd": value})
    assert str(caught.value).startswith("Metadata cannot be stored: 'odd' is ")
    assert "'fine'" not in str(caught.value)


def test_metadata_with_an_odd_key_is_refused() -> None:
    with pytest.raises(UnserializableValueError, match="The config of a run cannot be stored: 1 is 2"):
        encode_metadata({1: 2}, "The config of a run")  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("wanted", "matches"),
    [
        ({}, True),
        ({"n": 1}, True),
        ({"n": 1.0}, True),
        ({"n": True}, False),
        ({"n": "1"}, False),
        ({"on": True}, True),
        ({"on": 1}, False),
        ({"none": None}, True),
        ({"missing": None}, False),
        ({"list": [1, True, {"a": 0}]}, True),
        ({"list": [1, 1, {"a": 0}]}, False),
        ({"list": [1, True]}, False),
        ({"list": [1, True, {"a": False}]}, False),
        ({"dict": {"a": {"b": 1}, "c": 2}}, True),
        ({"dict": {"a": {"b": 1}}}, False),
        ({"n": [1]}, False),
        ({"n": {"a": 1}}, False),
        ({"list": 1}, False),
        ({"list": {"a": 1}}, False),
        ({"dict": 1}, False),
        ({"dict": {"a": {"b": 1}, "c": 2, "d": 3}}, False),
        ({"n": 1, "on": False}, False),
    ],
    ids=repr,
)
def test_metadata_matches_by_whole_values(wanted: dict[str, Any], matches: bool) -> None:
    metadata = {
        "n": 1,
        "on": True,
        "none": None,
        "list": [1, True, {"a": 0}],
        "dict": {"a": {"b": 1}, "c": 2},
    }
    assert metadata_matches(metadata, wanted) is matches
