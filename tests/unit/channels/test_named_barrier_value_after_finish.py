import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.channels import NamedBarrierValue, NamedBarrierValueAfterFinish
from perdure.constants import MISSING
from perdure.errors import EmptyChannelError, InvalidUpdateError

NAMES = frozenset({"a", "b"})
arrivals = st.lists(st.sampled_from(sorted(NAMES)), max_size=3)
events = st.lists(st.sampled_from(["consume", "finish"]) | arrivals, max_size=12)


@given(events)
def test_it_opens_when_it_is_complete_and_finished_until_it_is_consumed(events: list[Any]) -> None:
    barrier = NamedBarrierValueAfterFinish(str, NAMES)
    came: set[str] = set()
    opened = False
    for event in events:
        if event == "consume":
            assert barrier.consume() is opened
            came, opened = (set(), False) if opened else (came, False)
        elif event == "finish":
            assert barrier.finish() is (came == NAMES and not opened)
            opened = came == NAMES
        else:
            assert barrier.update(event) is not came.issuperset(event)
            came |= set(event)

        assert barrier.is_available() is opened
        assert (barrier.checkpoint() is MISSING) is (not came)
        if opened:
            barrier.get()


def test_the_errors_say_who_is_missing_or_that_it_waits_for_the_end() -> None:
    barrier = NamedBarrierValueAfterFinish(str, NAMES, key="join")
    barrier.update(["a"])
    with pytest.raises(EmptyChannelError, match=r"'join' has no value: the barrier still waits for \['b'\]"):
        barrier.get()

    barrier.update(["b"])
    with pytest.raises(
        EmptyChannelError,
        match=r"'join' has no value yet: it is available only when",
    ):
        barrier.get()


def test_a_foreign_name_is_refused() -> None:
    with pytest.raises(InvalidUpdateError, match=r"'join'.*'c'.*\['a', 'b'\]"):
        NamedBarrierValueAfterFinish(str, NAMES, key="join").update(["c"])


@given(arrivals, st.booleans())
def test_what_it_stores_is_json_and_loads_as_it_was(names: list[str], finish: bool) -> None:
    barrier = NamedBarrierValueAfterFinish(str, NAMES)
    barrier.update(names)
    if finish:
        barrier.finish()
    if names:
        stored = json.loads(json.dumps(barrier.checkpoint()))
        assert barrier.from_checkpoint(stored).checkpoint() == barrier.checkpoint()
        assert barrier.from_checkpoint(stored).is_available() is barrier.is_available()


@given(arrivals)
def test_what_a_barrier_that_did_not_wait_has_stored_opens_at_once_if_it_was_complete(
    names: list[str],
) -> None:
    plain = NamedBarrierValue(str, NAMES)
    plain.update(names)
    loaded = NamedBarrierValueAfterFinish(str, NAMES).from_checkpoint(plain.checkpoint())

    assert loaded.seen == set(names)
    assert loaded.is_available() is plain.is_available()


@given(arrivals, st.booleans())
def test_a_barrier_that_does_not_wait_loads_what_has_arrived_at_one_that_did(
    names: list[str], finish: bool
) -> None:
    deferred = NamedBarrierValueAfterFinish(str, NAMES)
    deferred.update(names)
    if finish:
        deferred.finish()
    loaded = NamedBarrierValue(str, NAMES).from_checkpoint(deferred.checkpoint())

    assert loaded.seen == set(names)
    assert loaded.is_available() is (set(names) == NAMES)


def test_a_stored_name_that_is_no_longer_waited_for_neither_shuts_nor_opens_it() -> None:
    stored = NamedBarrierValueAfterFinish(str, {"a", "gone"})
    stored.update(["a", "gone"])
    stored.finish()

    assert NamedBarrierValueAfterFinish(str, {"a"}).from_checkpoint(stored.checkpoint()).is_available()
    assert not NamedBarrierValueAfterFinish(str, NAMES).from_checkpoint(stored.checkpoint()).is_available()


def test_barriers_are_equal_when_they_wait_for_the_same_names_in_the_same_way() -> None:
    assert NamedBarrierValueAfterFinish(str, {"a"}) == NamedBarrierValueAfterFinish(int, {"a"}, key="k")
    assert NamedBarrierValueAfterFinish(str, {"a"}) != NamedBarrierValueAfterFinish(str, {"b"})
    assert NamedBarrierValueAfterFinish(str, {"a"}) != NamedBarrierValue(str, {"a"})
    assert NamedBarrierValue(str, {"a"}) != NamedBarrierValueAfterFinish(str, {"a"})
