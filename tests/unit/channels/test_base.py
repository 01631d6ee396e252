from collections import Counter, OrderedDict, UserList, defaultdict, deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.channels.base import is_container, shallow_copy


class Names(list[str]):
    label: str = ""


CONTAINERS: list[Any] = [
    [1],
    {"a": 1},
    {1},
    bytearray(b"a"),
    deque([1], maxlen=3),
    OrderedDict(b=1, a=2),
    defaultdict(list, a=[1]),
    Counter(a=2),
    Names(["a"]),
]

OTHERS: list[Any] = [None, 1, "a", b"a", (1, [2]), frozenset({1}), UserList([1]), object(), range(3)]


@pytest.mark.parametrize("value", CONTAINERS, ids=lambda value: type(value).__name__)
def test_builtin_mutable_containers_and_their_subclasses_are_copied_as_what_they_are(value: Any) -> None:
    copied = shallow_copy(value)

    assert is_container(value)
    assert copied is not value
    assert copied == value
    assert type(copied) is type(value)


@pytest.mark.parametrize("value", OTHERS, ids=lambda value: type(value).__name__)
def test_everything_else_is_handed_through(value: Any) -> None:
    assert not is_container(value)
    assert shallow_copy(value) is value


def test_a_copy_keeps_what_its_class_adds() -> None:
    names = Names(["a"])
    names.label = "people"

    assert shallow_copy(names).label == "people"
    assert shallow_copy(deque([1, 2], maxlen=2)).maxlen == 2
    assert shallow_copy(defaultdict(list, a=[1]))["absent"] == []
    assert list(shallow_copy(OrderedDict(b=1, a=2))) == ["b", "a"]


@given(st.lists(st.lists(st.integers()), min_size=1))
def test_a_copy_is_of_the_container_only_and_shares_the_elements(value: list[list[int]]) -> None:
    copied = shallow_copy(value)
    first = copied.pop(0)

    assert first is value[0]
    assert len(value) == len(copied) + 1
