import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.channels import Topic
from perdure.constants import MISSING
from perdure.errors import EmptyChannelError

Writes = list[int | list[int]]

supersteps_of_writes = st.lists(st.lists(st.integers() | st.lists(st.integers(), max_size=3), max_size=4))


def flat(writes: Writes) -> list[int]:
    return [item for write in writes for item in (write if isinstance(write, list) else [write])]


@given(supersteps_of_writes, st.booleans())
def test_a_topic_behaves_like_a_list(supersteps: list[Writes], accumulate: bool) -> None:
    topic: Topic[int] = Topic(int, accumulate)
    model: list[int] = []
    for writes in supersteps:
        new = flat(writes)
        changed = bool(new) or (not accumulate and bool(model))
        model = [*model, *new] if accumulate else new

        assert topic.update(writes) is changed
        assert topic.is_available() is bool(model)
        assert topic.checkpoint() == (model or MISSING)
        if model:
            assert topic.get() == model


def test_only_lists_are_flattened_and_only_once() -> None:
    topic: Topic[object] = Topic(object)
    topic.update([[1, [2]], (3, 4), "ab"])

    assert topic.get() == [1, [2], (3, 4), "ab"]


def test_writing_empty_lists_to_an_empty_topic_changes_nothing() -> None:
    topic: Topic[int] = Topic(int)

    assert not topic.update([[], []])
    assert not topic.is_available()


@pytest.mark.parametrize("accumulate", [False, True])
def test_what_is_handed_out_or_loaded_can_be_changed_without_changing_the_topic(accumulate: bool) -> None:
    stored = [1]
    topic = Topic[int](int, accumulate).from_checkpoint(stored)

    stored.append(2)
    topic.get().append(3)
    checkpoint = topic.checkpoint()
    assert isinstance(checkpoint, list)
    checkpoint.append(4)

    assert topic.get() == [1]


def test_it_is_transient_unless_it_accumulates() -> None:
    assert Topic(int).transient
    assert not Topic(int, accumulate=True).transient


def test_accumulating_survives_copying_and_loading() -> None:
    topic = Topic[int](int, accumulate=True).from_checkpoint([1]).copy()
    topic.update([2])

    assert topic.get() == [1, 2]


def test_the_error_for_an_empty_topic_names_the_key() -> None:
    with pytest.raises(EmptyChannelError, match="'jobs'"):
        Topic(int, key="jobs").get()


def test_topics_are_equal_when_both_accumulate_or_neither_does() -> None:
    assert Topic(int, key="a") == Topic(str, key="b")
    assert Topic(int, True) != Topic(int, False)
