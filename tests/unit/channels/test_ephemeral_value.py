import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.channels import EphemeralValue
from perdure.errors import InvalidUpdateError

Supersteps = list[list[int]]


@given(st.lists(st.lists(st.integers(), max_size=3)), st.lists(st.integers(), max_size=3))
def test_an_unguarded_value_is_the_last_write_of_the_last_superstep(
    earlier: Supersteps, last: list[int]
) -> None:
    channel: EphemeralValue[int] = EphemeralValue(int, guard=False)
    for writes in earlier:
        channel.update(writes)
    was_available = channel.is_available()

    assert channel.update(last) is (bool(last) or was_available)
    assert channel.is_available() is bool(last)
    if last:
        assert channel.get() == last[-1]


def test_a_value_lives_for_one_superstep() -> None:
    channel: EphemeralValue[int] = EphemeralValue(int)

    assert channel.update([1])
    assert channel.get() == 1
    assert channel.update([])
    assert not channel.is_available()
    assert not channel.update([])


def test_a_guarded_channel_refuses_two_writes_and_keeps_what_it_had() -> None:
    channel: EphemeralValue[int] = EphemeralValue(int, key="total")
    channel.update([1])

    with pytest.raises(
        InvalidUpdateError, match=r"At key 'total': EphemeralValue\(guard=True\).*guard=False"
    ):
        channel.update([2, 3])

    assert channel.get() == 1


def test_the_guard_survives_copying_and_loading() -> None:
    channel: EphemeralValue[int] = EphemeralValue(int, guard=False)

    assert channel.copy().update([1, 2])
    assert channel.from_checkpoint(1).update([1, 2])


def test_channels_are_equal_when_their_guards_are() -> None:
    assert EphemeralValue(int, key="a") == EphemeralValue(str, key="b")
    assert EphemeralValue(int, True) != EphemeralValue(int, False)
