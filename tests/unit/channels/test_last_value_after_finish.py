import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.channels import LastValueAfterFinish
from perdure.channels.last_value_after_finish import released
from perdure.constants import MISSING
from perdure.errors import EmptyChannelError

events = st.lists(
    st.sampled_from(["consume", "finish"]) | st.lists(st.integers() | st.none(), max_size=2), max_size=12
)


@given(events)
def test_it_shows_the_last_value_between_a_finish_and_the_next_write_or_consume(events: list[Any]) -> None:
    channel: LastValueAfterFinish[int | None] = LastValueAfterFinish(int, "k")
    value: Any = MISSING
    shown = False
    for event in events:
        if event == "consume":
            assert channel.consume() is shown
            value, shown = (MISSING, False) if shown else (value, False)
        elif event == "finish":
            assert channel.finish() is (value is not MISSING and not shown)
            shown = value is not MISSING
        else:
            assert channel.update(event) is bool(event)
            value, shown = (event[-1], False) if event else (value, shown)

        assert channel.is_available() is shown
        assert (channel.checkpoint() is MISSING) is (value is MISSING)
        if shown:
            assert channel.get() == value


def test_none_is_a_value() -> None:
    channel: LastValueAfterFinish[None] = LastValueAfterFinish(Any)
    channel.update([None])

    assert channel.finish()
    assert channel.is_available()
    assert channel.get() is None


def test_the_errors_say_whether_there_is_no_value_or_one_that_is_held_back() -> None:
    channel: LastValueAfterFinish[int] = LastValueAfterFinish(int, "later")
    with pytest.raises(EmptyChannelError, match=r"'later' has no value: nothing has been written"):
        channel.get()

    channel.update([1])
    with pytest.raises(
        EmptyChannelError, match=r"'later' has no value yet: it is available only when no other"
    ):
        channel.get()


@given(st.none() | st.integers() | st.lists(st.integers()) | st.dictionaries(st.text(), st.integers()))
def test_what_another_channel_stored_is_shown_at_once(stored: Any) -> None:
    loaded: LastValueAfterFinish[Any] = LastValueAfterFinish(Any).from_checkpoint(stored)

    assert loaded.is_available()
    assert loaded.get() == stored


@given(st.none() | st.integers() | st.dictionaries(st.text(), st.integers()), st.booleans())
def test_a_channel_that_does_not_wait_loads_its_value(value: Any, finished: bool) -> None:
    channel: LastValueAfterFinish[Any] = LastValueAfterFinish(int)
    channel.update([value])
    if finished:
        channel.finish()

    assert released(channel.checkpoint()) == value
    assert released(value) == value
    assert released(MISSING) is MISSING


@given(st.none() | st.integers(), st.booleans())
def test_what_it_stores_is_json_that_says_whether_it_is_shown(value: int | None, finished: bool) -> None:
    channel: LastValueAfterFinish[int | None] = LastValueAfterFinish(int)
    channel.update([value])
    if finished:
        channel.finish()
    stored = json.loads(json.dumps(channel.checkpoint()))

    assert channel.from_checkpoint(stored).is_available() is finished
    assert channel.from_checkpoint(stored).checkpoint() == channel.checkpoint()
