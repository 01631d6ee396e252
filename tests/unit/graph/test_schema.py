"""What a state's declaration says about its channels."""

from __future__ import annotations

import operator
from typing import Annotated, Any, Generic, NotRequired, Required, TypedDict, TypeVar

import pytest
import typing_extensions

from perdure.channels.base import BaseChannel
from perdure.channels.binop import BinaryOperatorAggregate
from perdure.channels.ephemeral_value import EphemeralValue
from perdure.channels.last_value import LastValue
from perdure.channels.topic import Topic
from perdure.errors import GraphValidationError, NodeSignatureError
from perdure.graph.schema import channels_of

Element = TypeVar("Element")


def append(left: list[Any], right: Any) -> list[Any]:
    return [*left, right]


class Spellings(TypedDict, total=False):
    plain: int
    required: Required[Annotated[list[int], operator.add]]
    not_required: NotRequired[Annotated[list[int], operator.add]]
    nested: Annotated[Annotated[list[int], "a note"], operator.add]
    note_first: Annotated[list[int], "a note", operator.add]


class ReadOnlyKeys(typing_extensions.TypedDict, total=False):
    read_only: typing_extensions.ReadOnly[Annotated[list[int], operator.add]]
    both: typing_extensions.Required[typing_extensions.ReadOnly[Annotated[list[int], operator.add]]]


class Inherits(Spellings):
    more: Annotated[list[int], append]


def test_a_plain_key_keeps_its_last_value() -> None:
    channel = channels_of(Spellings)["plain"]

    assert isinstance(channel, LastValue)
    assert channel.key == "plain"
    assert channel.typ is int


@pytest.mark.parametrize(
    ("schema", "key"),
    [
        *((Spellings, key) for key in ("required", "not_required", "nested", "note_first")),
        *((ReadOnlyKeys, key) for key in ("read_only", "both")),
        *((Inherits, key) for key in ("required", "more")),
    ],
)
def test_a_reducer_is_found_in_every_spelling(schema: Any, key: str) -> None:
    channel = channels_of(schema)[key]

    assert isinstance(channel, BinaryOperatorAggregate)
    assert channel.get() == [], "it starts from the empty value of its type"


def test_a_reducer_is_found_in_a_generic_schema() -> None:
    class Box(TypedDict, Generic[Element], total=False):
        items: Annotated[list[Element], operator.add]

    assert isinstance(channels_of(Box)["items"], BinaryOperatorAggregate)
    assert isinstance(channels_of(Box[int])["items"], BinaryOperatorAggregate)


def test_keys_come_in_the_order_of_declaration() -> None:
    assert list(channels_of(Spellings)) == ["plain", "required", "not_required", "nested", "note_first"]


def test_an_annotated_channel_is_copied_and_named_after_its_key() -> None:
    given: BaseChannel[Any, Any] = EphemeralValue(int)

    class State(TypedDict):
        one: Annotated[int, given]
        other: Annotated[int, given]

    globals()["given"] = given
    channels = channels_of(State)

    assert [channel.key for channel in channels.values()] == ["one", "other"]
    assert given.key == ""
    assert channels["one"] is not channels["other"]


def test_an_annotated_channel_class_is_made_with_the_type() -> None:
    class State(TypedDict):
        queue: Annotated[int, Topic]

    channel = channels_of(State)["queue"]

    assert isinstance(channel, Topic)
    assert (channel.typ, channel.key) == (int, "queue")


def test_metadata_that_cannot_be_called_is_no_reducer() -> None:
    class State(TypedDict):
        x: Annotated[int, "a note"]

    assert isinstance(channels_of(State)["x"], LastValue)


class OneParameter(TypedDict):
    x: Annotated[list[int], lambda left: left]


class ThreeParameters(TypedDict):
    x: Annotated[list[int], lambda left, right, more: left]


@pytest.mark.parametrize("schema", [OneParameter, ThreeParameters])
def test_a_reducer_that_does_not_take_two_values_is_refused_by_key(schema: Any) -> None:
    with pytest.raises(
        NodeSignatureError,
        match=rf"Invalid reducer signature for {schema.__name__}\.x\. Expected \(a, b\) -> c",
    ):
        channels_of(schema)


@pytest.mark.parametrize("schema", [int, "State", dict, Annotated[list[int], operator.add]])
def test_what_is_not_a_typed_dict_is_refused(schema: Any) -> None:
    with pytest.raises(GraphValidationError, match=r"Invalid state_schema: .* Expected a TypedDict"):
        channels_of(schema)


def test_an_annotation_that_cannot_be_found_is_named() -> None:
    class Local(TypedDict):
        x: int

    class State(TypedDict):
        local: Local

    with pytest.raises(GraphValidationError, match="annotations of State name 'Local'"):
        channels_of(State)
