"""The contract of BaseChannel, for every channel class."""

import json
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Optional, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.channels import (
    AnyValue,
    BaseChannel,
    BinaryOperatorAggregate,
    DeltaChannel,
    EphemeralValue,
    LastValue,
    LastValueAfterFinish,
    NamedBarrierValue,
    NamedBarrierValueAfterFinish,
    Topic,
    UntrackedValue,
)
from perdure.constants import MISSING
from perdure.errors import EmptyChannelError

NAMES = frozenset({"a", "b", "c"})


@dataclass(frozen=True)
class Kind:
    """A way to build a channel, and supersteps' writes that it accepts."""

    name: str
    build: Callable[[], BaseChannel[Any, Any]]
    batch: st.SearchStrategy[list[Any]] = field(default_factory=lambda: st.lists(st.integers(), max_size=3))

    def __str__(self) -> str:
        return self.name


def joined(state: list[int], writes: Sequence[list[int]]) -> list[int]:
    return [*state, *(item for write in writes for item in write)]


def latest(state: int | None, writes: Sequence[int]) -> int:
    return writes[-1]


ONE = st.lists(st.integers() | st.none(), max_size=1)
ITEMS = st.lists(st.integers() | st.lists(st.integers(), max_size=2), max_size=3)
SEEN = st.lists(st.sampled_from(sorted(NAMES)), max_size=3)
LISTS = st.lists(st.lists(st.integers(), max_size=2), max_size=3)

KINDS = [
    Kind("LastValue", lambda: LastValue(int, "k"), ONE),
    Kind("AnyValue", lambda: AnyValue(int, "k")),
    Kind("EphemeralValue", lambda: EphemeralValue(int, key="k"), ONE),
    Kind("EphemeralValue unguarded", lambda: EphemeralValue(int, False, key="k")),
    Kind("UntrackedValue", lambda: UntrackedValue(int, key="k"), ONE),
    Kind("UntrackedValue unguarded", lambda: UntrackedValue(int, False, key="k")),
    Kind("Topic", lambda: Topic(int, key="k"), ITEMS),
    Kind("Topic accumulating", lambda: Topic(int, True, key="k"), ITEMS),
    Kind("BinaryOperatorAggregate", lambda: BinaryOperatorAggregate(list, operator.add, key="k"), LISTS),
    Kind("BinaryOperatorAggregate empty", lambda: BinaryOperatorAggregate(None, operator.add, key="k")),
    Kind("DeltaChannel", lambda: DeltaChannel(joined, list, key="k"), LISTS),
    Kind("DeltaChannel empty", lambda: DeltaChannel(latest, Any, key="k")),
    Kind("NamedBarrierValue", lambda: NamedBarrierValue(str, NAMES, key="k"), SEEN),
    Kind("LastValueAfterFinish", lambda: LastValueAfterFinish(int, key="k")),
    Kind("NamedBarrierValueAfterFinish", lambda: NamedBarrierValueAfterFinish(str, NAMES, key="k"), SEEN),
]

STORED = [kind for kind in KINDS if not kind.name.startswith("UntrackedValue")]
STARTS_EMPTY = [kind for kind in KINDS if kind.name not in ("BinaryOperatorAggregate", "DeltaChannel")]

every_kind = pytest.mark.parametrize("kind", KINDS, ids=str)
every_stored_kind = pytest.mark.parametrize("kind", STORED, ids=str)
every_kind_that_starts_empty = pytest.mark.parametrize("kind", STARTS_EMPTY, ids=str)


def seen(channel: BaseChannel[Any, Any]) -> str:
    """Return everything observable of a channel as text, which later changes cannot reach."""
    value = channel.get() if channel.is_available() else "nothing"
    return repr((channel.key, channel.is_available(), value, channel.checkpoint()))


def after(kind: Kind, data: st.DataObject) -> BaseChannel[Any, Any]:
    channel = kind.build()
    for batch in data.draw(st.lists(kind.batch, max_size=4)):
        channel.update(batch)
        if data.draw(st.booleans()):
            channel.finish()
    return channel


@every_kind
@given(data=st.data())
def test_get_returns_exactly_when_the_channel_is_available(kind: Kind, data: st.DataObject) -> None:
    channel = after(kind, data)
    if channel.is_available():
        channel.get()
    else:
        with pytest.raises(EmptyChannelError, match="'k'"):
            channel.get()


WHY_EMPTY = {
    "AnyValue": "the last superstep did not write to it.",
    "EphemeralValue": "the last superstep did not write to it.",
    "UntrackedValue": "nothing has been written to it since this run started.",
    "LastValueAfterFinish": "nothing has been written to it since it was last consumed.",
    "NamedBarrierValue": "Key 'k' has no value: the barrier still waits for ['a', 'b', 'c'].",
    "NamedBarrierValueAfterFinish": "Key 'k' has no value: the barrier still waits for ['a', 'b', 'c'].",
    "Topic": "Key 'k' has no value: nothing has been written to this topic.",
}


@every_kind_that_starts_empty
def test_an_empty_channel_says_of_which_key_and_why(kind: Kind) -> None:
    with pytest.raises(EmptyChannelError) as raised:
        kind.build().get()

    why = WHY_EMPTY.get(kind.name.split()[0], "nothing has been written to it yet.")
    assert str(raised.value) in (why, f"Key 'k' has no value: {why}")


@every_kind_that_starts_empty
def test_a_new_channel_is_empty(kind: Kind) -> None:
    channel = kind.build()

    assert not channel.is_available()
    assert channel.checkpoint() is MISSING


@every_kind
@given(data=st.data())
def test_an_update_that_reports_no_change_changed_nothing(kind: Kind, data: st.DataObject) -> None:
    channel = after(kind, data)
    before = seen(channel)
    if not channel.update(data.draw(kind.batch)):
        assert seen(channel) == before


@every_kind
@given(data=st.data())
def test_a_superstep_without_writes_empties_the_transient_channels_and_no_other(
    kind: Kind, data: st.DataObject
) -> None:
    channel = after(kind, data)
    before, was_available = seen(channel), channel.is_available()

    changed = channel.update([])

    assert changed == (channel.transient and was_available)
    if channel.transient:
        assert not channel.is_available()
    else:
        assert seen(channel) == before


@every_stored_kind
@given(data=st.data())
def test_a_channel_loaded_from_its_checkpoint_is_the_same(kind: Kind, data: st.DataObject) -> None:
    channel = after(kind, data)
    loaded = kind.build().from_checkpoint(channel.checkpoint())

    assert loaded is not channel
    assert loaded == channel
    assert seen(loaded) == seen(channel)


@every_kind
@given(data=st.data())
def test_missing_makes_a_channel_as_new(kind: Kind, data: st.DataObject) -> None:
    assert seen(after(kind, data).from_checkpoint(MISSING)) == seen(kind.build())


@every_kind
@given(data=st.data())
def test_a_stored_value_is_not_changed_by_later_updates(kind: Kind, data: st.DataObject) -> None:
    channel = after(kind, data)
    stored = channel.checkpoint()
    before = repr(stored)

    channel.update(data.draw(kind.batch))
    channel.finish()
    channel.consume()

    assert repr(stored) == before


@every_kind
@given(data=st.data())
def test_finish_and_consume_say_whether_they_changed_anything(kind: Kind, data: st.DataObject) -> None:
    channel = after(kind, data)
    for change in data.draw(st.permutations([channel.finish, channel.consume])):
        before = seen(channel)
        assert change() is (seen(channel) != before)


@every_kind
@given(data=st.data())
def test_a_copy_and_its_original_do_not_see_each_others_updates(kind: Kind, data: st.DataObject) -> None:
    original = after(kind, data)
    copied = original.copy()
    before = seen(original)
    assert seen(copied) == before

    copied.update(data.draw(kind.batch))
    copied.finish()
    copied.consume()
    assert seen(original) == before

    changed = seen(copied)
    original.update(data.draw(kind.batch))
    original.finish()
    original.consume()
    assert seen(copied) == changed


@every_kind
@given(data=st.data())
def test_the_writes_given_to_a_channel_are_not_changed(kind: Kind, data: st.DataObject) -> None:
    channel = after(kind, data)
    batch = data.draw(kind.batch)
    before = json.dumps(batch)

    channel.update(batch)
    channel.update(data.draw(kind.batch))

    assert json.dumps(batch) == before


@every_kind
def test_a_channel_equals_one_built_alike_and_none_of_another_class(kind: Kind) -> None:
    channel = kind.build()

    assert channel == kind.build()
    for other in (each.build() for each in KINDS):
        if type(other) is not type(channel):
            assert channel != other


@every_kind
def test_a_channel_can_be_annotated_inside_an_optional(kind: Kind) -> None:
    channel = kind.build()
    hint = Optional[Annotated[int, channel]]  # noqa: UP045  # the spelling whose members typing hashes

    assert get_args(hint)[0].__metadata__[0] is channel


@every_kind
def test_equal_channels_in_annotations_of_one_type_stay_two(kind: Kind) -> None:
    first, second = kind.build(), kind.build()

    assert Annotated[int, first].__metadata__[0] is first  # type: ignore[attr-defined]  # of typing's own object
    assert Annotated[int, second].__metadata__[0] is second  # type: ignore[attr-defined]  # of typing's own object


@every_kind
def test_a_channel_has_no_room_for_other_attributes(kind: Kind) -> None:
    with pytest.raises(AttributeError):
        kind.build().unheard_of = 1  # type: ignore[attr-defined]  # that it does not exist is the point
