"""The keys that an object of an annotated class holds."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from perdure.data import Command, Send
from perdure.errors import InvalidUpdateError
from perdure.pregel.plan.objects import attributes, is_annotated, mapping_of


class Base:
    a: int = 1


class Derived(Base):
    b: int | None = None
    c: int


class Slotted:
    __slots__ = ("a",)
    a: int | None

    def __init__(self, a: int | None) -> None:
        self.a = a


@dataclasses.dataclass(slots=True)
class Data:
    a: int | None = None
    b: int | None = 2
    c: list[int] | None = dataclasses.field(default_factory=list)
    d: int | None = dataclasses.field(kw_only=True)


class Pair(NamedTuple):
    a: int | None
    b: int | None = None
    c: int | None = 3


class Model(BaseModel):
    a: int | None = None
    b: int = 2


@pytest.mark.parametrize(
    ("given", "held"),
    [
        (Derived(), {"a": 1}),
        (Slotted(None), {"a": None}),
        (Slotted(1), {"a": 1}),
        (Data(d=None), {"b": 2, "c": []}),
        (Data(1, None, None, d=4), {"a": 1, "b": None, "c": None, "d": 4}),
        (Pair(1), {"a": 1, "c": 3}),
        (Pair(None, None, None), {"c": None}),
        (Model(), {}),
        (Model(a=None), {"a": None}),
    ],
    ids=repr,
)
def test_an_object_holds_what_is_not_none_or_is_not_none_by_default(given: Any, held: dict[str, Any]) -> None:
    assert is_annotated(given)
    assert attributes(given) == held
    assert mapping_of("g", given) == held


@pytest.mark.parametrize("given", [1, "x", [1], None, object(), len, Exception("x")], ids=repr)
def test_what_has_no_annotations_is_no_such_object(given: Any) -> None:
    assert not is_annotated(given)
    with pytest.raises(InvalidUpdateError, match=r"^Expected dict, .* input of graph 'g' is a mapping"):
        mapping_of("g", given)


@pytest.mark.parametrize("given", [Command(update={"a": 1}), Send("a", 1)], ids=repr)
def test_what_tells_a_graph_where_to_go_is_no_input(given: Any) -> None:
    with pytest.raises(InvalidUpdateError, match="Expected dict"):
        mapping_of("g", given)


def test_a_mapping_is_given_back_as_it_is() -> None:
    given = {"a": 1}

    assert mapping_of("g", given) is given
