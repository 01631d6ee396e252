import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.channels import NamedBarrierValue
from perdure.constants import MISSING
from perdure.errors import EmptyChannelError, InvalidUpdateError

NAMES = frozenset({"a", "b", "c"})

CONSUME = None
"""Stands for a consume() among the supersteps."""

supersteps_and_consumes = st.lists(
    st.none() | st.lists(st.sampled_from(sorted(NAMES)), max_size=3), max_size=12
)


@given(supersteps_and_consumes)
def test_it_is_available_exactly_when_all_names_came_since_it_was_last_consumed(
    events: list[list[str] | None],
) -> None:
    barrier = NamedBarrierValue(str, NAMES)
    came: set[str] = set()
    for event in events:
        if event is CONSUME:
            assert barrier.consume() is (came == NAMES)
            came = set() if came == NAMES else came
        else:
            assert barrier.update(event) is not came.issuperset(event)
            came |= set(event)

        assert barrier.is_available() is (came == NAMES)
        assert barrier.checkpoint() == (sorted(came) or MISSING)


def test_its_value_is_none_once_all_names_came() -> None:
    barrier = NamedBarrierValue(str, NAMES, key="join")
    barrier.update(["a", "b"])
    with pytest.raises(EmptyChannelError, match=r"'join'.*\['c'\]"):
        barrier.get()

    barrier.update(["c"])
    barrier.get()


def test_a_foreign_name_is_refused_with_key_name_and_names_and_nothing_of_its_superstep_counts() -> None:
    barrier = NamedBarrierValue(str, NAMES, key="join")

    with pytest.raises(InvalidUpdateError, match=r"'join'.*'d'.*\['a', 'b', 'c'\]"):
        barrier.update(["a", "d"])

    assert barrier.checkpoint() is MISSING


def test_what_it_stores_is_json_and_any_iterable_of_names_loads() -> None:
    barrier = NamedBarrierValue(str, NAMES)
    barrier.update(["c", "a"])

    assert json.dumps(barrier.checkpoint()) == '["a", "c"]'
    for stored in (["a", "c"], {"a", "c"}, ("c", "a"), frozenset({"a", "c"}), iter(["a", "c"])):
        assert barrier.from_checkpoint(stored).checkpoint() == ["a", "c"]


def test_a_stored_name_that_is_no_longer_waited_for_does_not_keep_it_shut() -> None:
    barrier = NamedBarrierValue(str, {"a", "b"}).from_checkpoint(["a", "removed"])
    barrier.update(["b"])

    assert barrier.is_available()


def test_barriers_are_equal_when_they_wait_for_the_same_names() -> None:
    assert NamedBarrierValue(str, {"a", "b"}, key="x") == NamedBarrierValue(
        int, frozenset({"b", "a"}), key="y"
    )
    assert NamedBarrierValue(str, {"a"}) != NamedBarrierValue(str, {"b"})
