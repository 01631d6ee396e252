from hypothesis import given
from hypothesis import strategies as st

from perdure.channels import AnyValue

Supersteps = list[list[int]]


@given(st.lists(st.lists(st.integers(), max_size=3)), st.lists(st.integers(), max_size=3))
def test_the_value_is_the_last_write_of_the_last_superstep(earlier: Supersteps, last: list[int]) -> None:
    channel: AnyValue[int] = AnyValue(int)
    for writes in earlier:
        channel.update(writes)
    was_available = channel.is_available()

    assert channel.update(last) is (bool(last) or was_available)
    assert channel.is_available() is bool(last)
    if last:
        assert channel.get() == last[-1]


def test_it_is_transient() -> None:
    assert AnyValue(int).transient


def test_channels_of_different_types_are_equal() -> None:
    assert AnyValue(int, "a") == AnyValue(str, "b")
