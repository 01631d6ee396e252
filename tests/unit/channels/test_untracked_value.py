import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.channels import UntrackedValue
from perdure.constants import MISSING
from perdure.errors import InvalidUpdateError


@given(st.lists(st.lists(st.integers(), max_size=3)))
def test_an_unguarded_value_is_the_last_one_written(supersteps: list[list[int]]) -> None:
    channel: UntrackedValue[int] = UntrackedValue(int, guard=False)
    for writes in supersteps:
        assert channel.update(writes) is bool(writes)

    written = [value for writes in supersteps for value in writes]
    assert channel.is_available() is bool(written)
    if written:
        assert channel.get() == written[-1]


def test_it_is_never_stored_nor_loaded() -> None:
    channel: UntrackedValue[int] = UntrackedValue(int)
    channel.update([1])

    assert channel.checkpoint() is MISSING
    assert not channel.from_checkpoint(1).is_available()
    assert channel.get() == 1


def test_a_copy_has_the_value() -> None:
    channel: UntrackedValue[int] = UntrackedValue(int)
    channel.update([1])

    assert channel.copy().get() == 1


def test_a_guarded_channel_refuses_two_writes_and_keeps_what_it_had() -> None:
    channel: UntrackedValue[int] = UntrackedValue(int, key="total")
    channel.update([1])

    with pytest.raises(
        InvalidUpdateError, match=r"At key 'total': UntrackedValue\(guard=True\).*guard=False"
    ):
        channel.update([2, 3])

    assert channel.get() == 1


def test_the_guard_survives_copying_and_loading() -> None:
    channel: UntrackedValue[int] = UntrackedValue(int, guard=False)

    assert channel.copy().update([1, 2])
    assert channel.from_checkpoint(MISSING).update([1, 2])


def test_channels_are_equal_when_their_guards_are() -> None:
    assert UntrackedValue(int, key="a") == UntrackedValue(str, key="b")
    assert UntrackedValue(int, True) != UntrackedValue(int, False)
