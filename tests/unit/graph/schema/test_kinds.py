"""The channels that a state's schema declares."""

from __future__ import annotations

import dataclasses
import functools
import operator
import re
from typing import Annotated, Any, ClassVar, Generic, NotRequired, Required, TypedDict, TypeVar

import pytest
import typing_extensions
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, RootModel

from perdure.channels.base import BaseChannel
from perdure.channels.binop import BinaryOperatorAggregate
from perdure.channels.ephemeral_value import EphemeralValue
from perdure.channels.last_value import LastValue
from perdure.channels.topic import Topic
from perdure.constants import MISSING
from perdure.errors import GraphValidationError, NodeSignatureError
from perdure.graph.schema.declaration import schema_of
from perdure.graph.schema.kinds import Kind, kind_of
from perdure.managed import IsLastStep, RemainingSteps

Element = TypeVar("Element")


def channels_of(schema: Any) -> dict[str, BaseChannel[Any, Any]]:
    return schema_of(schema).channels


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


class FunctionBeforeNote(TypedDict):
    x: Annotated[list[int], lambda left: left, "a note"]


@pytest.mark.parametrize("schema", [OneParameter, ThreeParameters, FunctionBeforeNote])
def test_a_reducer_that_does_not_take_two_values_is_refused_by_key(schema: Any) -> None:
    with pytest.raises(
        NodeSignatureError,
        match=rf"Invalid reducer signature for {schema.__name__}\.x\. Expected \(a, b\) -> c",
    ):
        channels_of(schema)


@pytest.mark.parametrize("schema", [int, "State", dict, RootModel[int], Annotated[list[int], operator.add]])
def test_what_has_no_annotations_is_one_bare_value(schema: Any) -> None:
    assert kind_of(schema) is Kind.BARE
    assert list(channels_of(schema)) == ["__root__"]


def test_a_bare_value_may_have_a_reducer() -> None:
    assert channels_of(Annotated[list[int], operator.add])["__root__"].get() == []


Items = typing_extensions.TypeAliasType("Items", Annotated[list[int], operator.add])
Items_of = typing_extensions.TypeAliasType(
    "Items_of", Annotated[list[Element], operator.add], type_params=(Element,)
)


class MoreSpellings(TypedDict, total=False):
    optional: Annotated[list[int], operator.add] | None
    or_none: Annotated[list[int], operator.add] | None
    optional_inside: Annotated[Annotated[list[int], operator.add] | None, "a note"]
    note_after: Annotated[list[int], operator.add, "a docstring"]
    field_after: Annotated[list[int], operator.add, Field(description="a field")]
    not_required_optional: NotRequired[Annotated[list[int], operator.add] | None]
    read_only_optional: typing_extensions.ReadOnly[Annotated[list[int], operator.add] | None]
    alias: Items
    generic_alias: Items_of[int]
    instance_in_optional: Annotated[list[int], BinaryOperatorAggregate(list, operator.add)] | None


class Model(BaseModel):
    """Equal spellings in pydantic, which parses annotations itself."""

    annotated: Annotated[list[int], operator.add]
    optional: Annotated[list[int], operator.add] | None
    note_after: Annotated[list[int], operator.add, "a docstring"]
    field_after: Annotated[list[int], operator.add, Field(description="a field")]
    field_before: Annotated[list[int], Field(description="a field"), operator.add]
    beside_a_validator: Annotated[list[int], operator.add, AfterValidator(len)]
    defaulted: Annotated[list[int], operator.add] = Field(default_factory=list)


@dataclasses.dataclass
class Data:
    annotated: Annotated[list[int], operator.add]
    optional: Annotated[list[int], operator.add] | None
    note_after: Annotated[list[int], operator.add, "a docstring"]


@pytest.mark.parametrize(
    ("schema", "key"),
    [(schema, key) for schema in (MoreSpellings, Model, Data) for key in schema.__annotations__],
)
def test_a_reducer_is_found_wherever_it_stands(schema: Any, key: str) -> None:
    channel = channels_of(schema)[key]

    assert isinstance(channel, BinaryOperatorAggregate)
    assert (channel.operator, channel.key, channel.get()) == (operator.add, key, [])


def test_parameters_of_a_generic_schema_are_filled_in() -> None:
    class Box(TypedDict, Generic[Element], total=False):
        one: Element
        items: Annotated[Element, operator.add]

    filled = channels_of(Box[list[int]])

    assert filled["one"].typ == list[int]
    assert filled["items"].get() == []


def test_parameters_of_the_schema_that_one_is_derived_from_are_filled_in() -> None:
    class Box(TypedDict, Generic[Element], total=False):
        items: Annotated[Element, operator.add]

    class Lists(Box[list[int]]):
        more: int

    @dataclasses.dataclass
    class Data(Generic[Element]):
        items: Annotated[Element, operator.add]

    @dataclasses.dataclass
    class Texts(Data[str]):
        more: int = 0

    assert channels_of(Lists)["items"].get() == []
    assert channels_of(Texts)["items"].get() == ""


def first(left: int | None, right: int) -> int:
    return right if left is None else left


@dataclasses.dataclass
class Defaults:
    items: Annotated[list[int], operator.add] = dataclasses.field(default_factory=lambda: [1])
    total: Annotated[int, operator.add] = 5
    nothing: Annotated[int | None, first] = None
    plain: int = 7
    none: Annotated[int, operator.add, "no default"] = dataclasses.field(kw_only=True)


class ModelDefaults(BaseModel):
    items: Annotated[list[int], operator.add] = [1]
    total: Annotated[int, operator.add] = 5
    nothing: Annotated[int | None, first] = None
    plain: int = 7
    none: Annotated[int, operator.add, "no default"]


@pytest.mark.parametrize("schema", [Defaults, ModelDefaults])
def test_a_reduced_key_starts_from_the_default_of_its_field(schema: Any) -> None:
    channels = channels_of(schema)

    assert channels["items"].get() == [1]
    assert channels["total"].get() == 5
    assert channels["none"].get() == 0, "without a default it starts from the empty value of its type"
    assert not channels["nothing"].is_available(), "None says that there is no value yet"
    assert not channels["plain"].is_available(), "what keeps the last value keeps only what was written"


def test_defaults_are_made_anew_for_each_empty_channel() -> None:
    channel = channels_of(Defaults)["items"]
    channel.get().append(2)

    assert channel.from_checkpoint(MISSING).get() == [1]
    assert channel.copy().get() == [1, 2]


def test_only_what_a_constructor_takes_is_a_key_of_a_dataclass() -> None:
    @dataclasses.dataclass
    class State:
        x: int
        y: int = dataclasses.field(init=False)
        shared: ClassVar[int] = 0

    assert list(channels_of(State)) == ["x"]


def test_a_hint_named_slots_is_no_key() -> None:
    class State:
        __slots__: tuple[str, ...] = ("x",)
        x: int

    assert list(channels_of(State)) == ["x"]


def test_only_fields_are_keys_of_a_model() -> None:
    class State(BaseModel):
        model_config = ConfigDict(extra="allow")
        x: int
        shared: ClassVar[int] = 0
        _private: int = 0

    assert list(channels_of(State)) == ["x"]


def test_a_model_that_names_what_there_is_not_is_refused() -> None:
    class State(BaseModel):
        x: Nowhere  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(GraphValidationError, match="pydantic model State is not complete"):
        schema_of(State)


class Managed(TypedDict, total=False):
    x: int
    last: IsLastStep
    optional: RemainingSteps | None
    noted: Annotated[RemainingSteps, "a note"]
    qualified: NotRequired[RemainingSteps]


def test_managed_values_are_found_in_every_spelling_and_are_no_channels() -> None:
    schema = schema_of(Managed)

    assert list(schema.channels) == ["x"]
    assert list(schema.managed) == ["last", "optional", "noted", "qualified"]


def test_a_channel_class_that_needs_more_than_a_type_is_refused_by_key() -> None:
    class State(TypedDict):
        x: Annotated[list[int], BinaryOperatorAggregate]

    with pytest.raises(GraphValidationError, match=r"State\.x .* class BinaryOperatorAggregate, which needs"):
        schema_of(State)


class UntypedChannel(TypedDict):
    x: Annotated[list[int], BinaryOperatorAggregate(None, operator.add)]


def test_a_channel_without_a_type_takes_the_annotated_one() -> None:
    channel = channels_of(UntypedChannel)["x"]

    assert channel.typ == list[int]
    assert channel.get() == []


class Marker:
    """Metadata that is a class, and so can be called."""


class Marked(TypedDict):
    x: Annotated[list[int], Marker, operator.add]
    y: Annotated[int, Marker, "a note"]
    z: Annotated[list[int], operator.add, len]


def test_of_all_that_can_be_called_what_takes_two_values_is_the_reducer() -> None:
    channels = channels_of(Marked)

    assert isinstance(channels["x"], BinaryOperatorAggregate)
    assert isinstance(channels["y"], LastValue)
    assert isinstance(channels["z"], BinaryOperatorAggregate)


def test_an_annotation_that_cannot_be_found_is_named() -> None:
    class Local(TypedDict):
        x: int

    class State(TypedDict):
        local: Local

    with pytest.raises(GraphValidationError, match="annotations of State name 'Local'"):
        channels_of(State)


@pytest.mark.parametrize(
    "key",
    ["__start__", "__root__", "__error__", "__no_writes__", "__pregel_tasks", "branch:to:a", "join:a+b:c"],
)
def test_a_key_that_the_engine_uses_itself_is_refused(key: str) -> None:
    schema = TypedDict("Loud", {key: int})  # type: ignore[misc]
    message = f"^Loud declares the state key {re.escape(repr(key))}, which is reserved"

    with pytest.raises(GraphValidationError, match=message):
        schema_of(schema)


def test_a_key_may_be_called_as_anything_else() -> None:
    names = ["configurable", "items", "get", "a key", "branch", "class", "messages"]
    odd = TypedDict("Odd", dict.fromkeys(names, int))  # type: ignore[misc]

    assert list(channels_of(odd)) == names


async def reduces_later(left: Any, right: Any) -> Any: ...


def yields(left: Any, right: Any) -> Any:
    yield left


class ReducesLater:
    async def __call__(self, left: Any, right: Any) -> Any: ...


@pytest.mark.parametrize("reducer", [reduces_later, yields, ReducesLater(), functools.partial(reduces_later)])
def test_a_reducer_that_does_not_return_the_value_is_refused(reducer: Any) -> None:
    schema = dataclasses.make_dataclass("Reduced", [("items", Annotated[list[int], reducer])])

    with pytest.raises(NodeSignatureError, match=r"^The reducer of Reduced\.items is async or a generator"):
        schema_of(schema)


def test_a_dataclass_with_a_value_for_its_making_only_is_refused() -> None:
    @dataclasses.dataclass
    class Made:
        x: int
        seed: dataclasses.InitVar[int]

    with pytest.raises(GraphValidationError, match="Made has 'seed' as an InitVar, which its objects do not"):
        schema_of(Made)
