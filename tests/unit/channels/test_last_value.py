import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.channels import LastValue
from perdure.data import Overwrite
from perdure.errors import EmptyChannelError, InvalidUpdateError


@given(st.lists(st.lists(st.integers() | st.none(), max_size=1)))
def test_the_value_is_the_last_one_written(supersteps: list[list[int | None]]) -> None:
    channel: LastValue[int | None] = LastValue(int, "k")
    for writes in supersteps:
        assert channel.update(writes) is bool(writes)

    written = [value for writes in supersteps for value in writes]
    assert channel.is_available() is bool(written)
    if written:
        assert channel.get() == written[-1]


def test_none_is_a_value() -> None:
    channel: LastValue[None] = LastValue(type(None))
    channel.update([None])

    assert channel.is_available()
    assert channel.get() is None
    assert channel.checkpoint() is None
    assert channel.from_checkpoint(None).is_available()


def test_two_writes_in_a_superstep_are_refused_with_the_key_and_the_remedy() -> None:
    channel: LastValue[int] = LastValue(int, "total")
    channel.update([1])

    with pytest.raises(InvalidUpdateError) as caught:
        channel.update([2, 3])

    message = str(caught.value)
    assert message.startswith("At key 'total': Can receive only one value per step")
    assert "annotate the key with a reducer" in message
    assert channel.get() == 1


def test_the_error_for_an_empty_channel_names_the_key() -> None:
    with pytest.raises(EmptyChannelError, match="'total'"):
        LastValue(int, "total").get()


def test_an_overwrite_is_a_value_like_any_other() -> None:
    channel: LastValue[Overwrite] = LastValue(int)
    channel.update([Overwrite(1)])

    assert channel.get() == Overwrite(1)


def test_channels_of_different_types_are_equal() -> None:
    assert LastValue(int, "a") == LastValue(str, "b")
