from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.graph.drawing.safe_ids import safe_ids


@pytest.mark.parametrize(
    "name", ["a", "call_model", "get-weather", "ends", "Styles", "__start__", "TB", "x1"]
)
def test_a_name_that_can_be_an_id_is_one(name: str) -> None:
    assert safe_ids([name]) == {name: name}


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("a:b", "a\\3ab"),
        ("a b", "a\\20b"),
        ('"', "\\22"),
        ("é", "\\e9"),
        ("a--b", "a\\2d-b"),
        ("a-", "a\\2d"),
        ("-a", "\\2da"),
        ("1", "\\31"),
        ("", "_"),
    ],
)
def test_what_an_id_cannot_have_is_written_as_its_code_point(name: str, id: str) -> None:
    assert safe_ids([name]) == {name: id}


@pytest.mark.parametrize(
    "word",
    ["end", "END", "graph", "subgraph", "style", "classDef", "default", "click", "end-x", "_self", "_blanks"],
)
def test_a_name_that_begins_with_a_word_of_mermaid_does_not_read_as_it(word: str) -> None:
    assert safe_ids([word]) == {word: f"\\{ord(word[0]):x}{word[1:]}"}


def test_names_that_come_out_the_same_are_told_apart() -> None:
    assert safe_ids(["a:b", "a\u03ab", "a\u03ab_2", "a:b_2"]) == {
        "a:b": "a\\3ab",
        "a\u03ab": "a\\3ab_2",
        "a\u03ab_2": "a\\3ab_2_2",
        "a:b_2": "a\\3ab_2_3",
    }


@given(st.lists(st.text(st.characters(), max_size=8), unique=True))
def test_ids_of_different_names_are_different_and_safe(names: list[str]) -> None:
    ids = safe_ids(names)

    assert list(ids) == names
    assert len(set(ids.values())) == len(names)
    assert all(re.fullmatch(r"(?:[A-Za-z0-9_\\]|-(?=[A-Za-z0-9_]))+", each) for each in ids.values())
