"""Names of nodes and channels."""

from __future__ import annotations

import pytest

from perdure.constants import START
from perdure.errors import GraphValidationError
from perdure.pregel.plan.names import check_characters, names_of, nearest


def test_one_name_is_not_taken_for_its_letters() -> None:
    assert names_of("abc") == ("abc",)
    assert names_of(["a", "b"]) == ("a", "b")


def test_a_misspelt_name_is_told_the_nearest() -> None:
    assert nearest("serch", ["search", "answer"]) == " Did you mean 'search'?"


def test_a_name_like_no_other_is_told_all_but_start() -> None:
    assert nearest("q", {START: 1, "search": 2, "answer": 3}) == " Known: answer, search."


@pytest.mark.parametrize("name", ["a|b", "a:b"])
def test_what_stands_between_names_in_a_namespace_is_refused_in_one(name: str) -> None:
    with pytest.raises(GraphValidationError, match=r"is a reserved character .* node names: 'a.b'"):
        check_characters(name)
