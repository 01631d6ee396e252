from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.channels import DeltaChannel
from perdure.constants import MISSING, START
from perdure.data import Overwrite
from perdure.errors import EmptyChannelError, InvalidUpdateError
from perdure.graph.state import StateGraph
from tests.unit.pregel.graphs import returns, thread
from tests.unit.pregel.savers import WatchedSaver


def concatenate(state: list[Any], writes: Sequence[list[Any]]) -> list[Any]:
    for write in writes:
        state.extend(write)
    return state


def merge(state: dict[str, Any], writes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {**state, **{key: value for write in writes for key, value in write.items()}}


def no_value(state: Any, writes: Sequence[Any]) -> None:
    return None


class Told(TypedDict, total=False):
    items: Annotated[list[int], DeltaChannel(concatenate)]
    names: Annotated[dict[str, int], DeltaChannel(merge, snapshot_frequency=3)]


@given(st.lists(st.lists(st.lists(st.integers(), max_size=2), max_size=3), max_size=5))
def test_it_reduces_all_writes_of_a_superstep_in_one_call(supersteps: list[list[list[int]]]) -> None:
    calls: list[int] = []

    def counting(state: list[int], writes: Sequence[list[int]]) -> list[int]:
        calls.append(len(writes))
        return concatenate(state, writes)

    channel: DeltaChannel[list[int]] = DeltaChannel(counting, list)
    for writes in supersteps:
        before = channel.get()
        kept = list(before)
        assert channel.update(writes) is bool(writes)
        assert before == kept, "a reducer that works in place changed what had been handed out"

    assert channel.get() == [item for writes in supersteps for write in writes for item in write]
    assert calls == [len(writes) for writes in supersteps if writes]


@pytest.mark.parametrize(("typ", "start"), [(None, []), (list, []), (dict[str, int], {}), (int, 0)])
def test_it_starts_from_the_empty_value_of_its_type_or_from_a_list(typ: Any, start: Any) -> None:
    channel: DeltaChannel[Any] = DeltaChannel(concatenate, typ)

    assert channel.is_available()
    assert channel.get() == start
    assert channel.checkpoint() is MISSING


def test_of_a_type_that_starts_from_nothing_it_is_empty_and_the_reducer_gets_none() -> None:
    seen: list[Any] = []

    def last(state: Any, writes: Sequence[Any]) -> Any:
        seen.append(state)
        return writes[-1]

    channel: DeltaChannel[Any] = DeltaChannel(last, Any, key="k")
    with pytest.raises(EmptyChannelError, match="'k' has no value"):
        channel.get()
    channel.update([1, 2])
    channel.update([3])

    assert (channel.get(), seen) == (3, [None, 2])


def test_an_overwrite_replaces_the_value_and_drops_the_other_writes() -> None:
    channel: DeltaChannel[list[int]] = DeltaChannel(concatenate)
    channel.update([[1]])
    new = [7]
    channel.update([[2], Overwrite(new), [3]])
    assert channel.get() == [7]

    channel.update([[8]])
    assert (channel.get(), new) == ([7, 8], [7])
    channel.update([{"__overwrite__": [9]}])
    assert channel.get() == [9]


def test_overwritten_with_none_it_starts_anew() -> None:
    channel: DeltaChannel[list[int]] = DeltaChannel(concatenate)
    channel.update([[1]])
    channel.update([Overwrite(None)])

    assert channel.get() == []
    assert channel.checkpoint() == [], "it was written to, which a stored version must tell"
    assert channel.from_checkpoint(None).get() == []


def test_a_reducer_that_makes_none_starts_it_anew() -> None:
    channel: DeltaChannel[list[int]] = DeltaChannel(no_value)
    channel.update([[1]])

    assert channel.get() == []


def test_two_overwrites_in_a_superstep_are_refused() -> None:
    with pytest.raises(InvalidUpdateError, match=r"At key 'k': Can receive only one Overwrite"):
        DeltaChannel(concatenate, key="k").update([Overwrite([1]), Overwrite([2])])


def test_what_a_node_wrote_stays_the_nodes() -> None:
    def last(state: list[int], writes: Sequence[list[int]]) -> list[int]:
        return writes[-1]

    channel: DeltaChannel[list[int]] = DeltaChannel(last)
    written = [1]
    channel.update([written])
    written.append(2)

    assert channel.get() == [1]


@pytest.mark.parametrize("frequency", [0, -1])
def test_a_frequency_that_is_not_positive_is_refused(frequency: int) -> None:
    with pytest.raises(ValueError, match=rf"snapshot_frequency must be greater than 0, got {frequency}"):
        DeltaChannel(concatenate, snapshot_frequency=frequency)


def test_the_frequency_can_be_read_back_from_every_copy() -> None:
    assert DeltaChannel(concatenate, snapshot_frequency=7).copy().snapshot_frequency == 7


def test_channels_are_equal_when_their_reducers_are() -> None:
    assert DeltaChannel(concatenate) == DeltaChannel(concatenate, list, snapshot_frequency=5)
    assert DeltaChannel(concatenate) != DeltaChannel(merge)
    assert DeltaChannel(concatenate) == DeltaChannel(lambda state, writes: state)


async def test_in_a_state_it_takes_the_annotated_type_and_is_stored_like_any_reduced_key() -> None:
    builder = StateGraph(Told)
    builder.add_node("a", returns({"items": [1], "names": {"a": 1}})).add_edge(START, "a")
    builder.add_node("b", returns({"items": [2], "names": {"b": 2}})).add_edge(START, "b")
    graph = builder.compile(checkpointer=WatchedSaver())

    assert await graph.ainvoke({"items": [0]}, thread()) == {"items": [0, 1, 2], "names": {"a": 1, "b": 2}}
    assert await graph.ainvoke({"items": [9]}, thread()) == {
        "items": [0, 1, 2, 9, 1, 2],
        "names": {"a": 1, "b": 2},
    }
