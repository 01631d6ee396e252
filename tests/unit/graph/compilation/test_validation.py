"""A state that pydantic models declare: what is written is validated, once, where it is written."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import pytest
from pydantic import BaseModel, Field, ValidationError, field_validator

from perdure.channels.topic import Topic
from perdure.channels.untracked_value import UntrackedValue
from perdure.checkpoint.memory import InMemorySaver
from perdure.constants import END, START
from perdure.data import Command, Overwrite
from perdure.errors import (
    GraphValidationError,
    InvalidUpdateWarning,
    UnserializableValueError,
)
from perdure.graph.state import StateGraph
from perdure.pregel.graph import Pregel
from tests.unit.graph.models import Item, State, graph, returns
from tests.unit.pregel.graphs import thread

# What nodes write


async def test_what_validators_make_of_a_value_is_stored_seen_and_returned() -> None:
    seen: list[Any] = []
    compiled = graph({"name": "  ADA ", "count": "3"}, seen=seen)
    stored = Pregel.from_plan(compiled.plan, checkpointer=InMemorySaver())

    result = await stored.ainvoke({}, thread())

    assert (result["name"], result["count"]) == ("ada", 3)
    assert (seen[0].name, seen[0].count) == ("ada", 3)
    assert (await stored.aget_state(thread())).values == result


async def test_a_nested_model_stays_a_model_and_is_made_of_a_dict() -> None:
    seen: list[Any] = []
    result = await graph({"item": {"a": "1"}}, seen=seen).ainvoke({})

    assert result["item"] == Item(a=1) == seen[0].item


@pytest.mark.parametrize(
    "update", [{"count": "x"}, Command(update={"count": "x"}), Command(update=[("count", "x")])], ids=repr
)
async def test_an_invalid_update_fails_in_the_node_that_wrote_it(update: Any) -> None:
    seen: list[Any] = []
    with pytest.raises(ValidationError, match=r"1 validation error for State\ncount") as refused:
        await graph(update, seen=seen).ainvoke({})

    assert "While validating what node 'n0' wrote to state key 'count'" in refused.value.__notes__
    assert any("'n0'" in note for note in refused.value.__notes__[1:]), "the note of the task"
    assert seen == []


async def test_an_invalid_update_of_a_command_given_as_the_input_is_said_to_be_the_inputs() -> None:
    with pytest.raises(ValidationError) as refused:
        await graph({}).ainvoke(Command(update={"count": "x"}, goto="n0"))

    assert refused.value.__notes__ == ["While validating what the input wrote to state key 'count'"]


async def test_a_valid_state_is_not_validated_again_when_it_is_read() -> None:
    calls: list[Any] = []

    class Once(BaseModel):
        x: int = 0
        y: int = 0

        @field_validator("x")
        @classmethod
        def counts(cls, value: int) -> int:
            calls.append(value)
            return value + 1

    seen: list[Any] = []
    result = await graph({"y": 1}, {"y": 2}, schema=Once, seen=seen).ainvoke({"x": 1})

    assert calls == [1], "when it came in, and never after"
    assert (result["x"], seen[0].x) == (2, 2)


async def test_a_model_that_is_returned_writes_the_fields_that_were_set() -> None:
    result = await graph(State(count=5)).ainvoke({"name": "ada", "items": [{"a": 1}]})

    assert result["name"] == "ada"
    assert (result["count"], result["items"]) == (5, [Item(a=1)])


async def test_a_misspelt_key_is_warned_of_with_the_nearest() -> None:
    with pytest.warns(InvalidUpdateWarning, match=r"Node 'n0' wrote to 'naem'.* Did you mean 'name'\?"):
        await graph({"naem": "x"}).ainvoke({})


async def test_a_node_is_given_defaults_for_what_is_missing_and_knows_what_was_set() -> None:
    seen: list[Any] = []
    result = await graph(seen=seen).ainvoke({"count": 1})

    assert seen[0].name == "nobody"
    assert seen[0].model_fields_set == {"count", "items", "kept", "loose"}
    assert "name" not in result, "a default is not a value of the state"


async def test_a_path_is_given_the_model_with_its_nodes_writes() -> None:
    seen: list[Any] = []
    builder = StateGraph(State).add_node("a", returns({"name": " ADA"})).add_edge(START, "a")

    def path(state: State) -> str:
        seen.append((type(state), state.name, state.kept))
        return END

    await builder.add_conditional_edges("a", path).compile().ainvoke({"kept": [1]})
    assert seen == [(State, "ada", [1])]


# Keys with a reducer


async def test_a_reducers_right_hand_annotation_validates_what_comes_in_and_the_whole_is_left_alone() -> None:
    result = await graph({"kept": ["2"]}).ainvoke({"kept": ["1"]})

    assert result["kept"] == [1, 2], "by the reducer's list[int], not by the field's list[str]"


async def test_what_an_operator_puts_together_is_validated_as_the_type_of_the_field() -> None:
    assert (await graph({"items": [{"a": 1}]}).ainvoke({}))["items"] == [Item(a=1)]


async def test_a_reducer_that_says_nothing_is_given_what_was_written() -> None:
    assert (await graph({"loose": ["x"]}).ainvoke({}))["loose"] == ["x"]


async def test_an_element_that_the_reducer_does_not_take_fails_in_the_node_that_wrote_it() -> None:
    with pytest.raises(ValidationError) as refused:
        await graph({"kept": "x"}).ainvoke({})

    assert "While validating what node 'n0' wrote to state key 'kept'" in refused.value.__notes__


@pytest.mark.parametrize(
    "write",
    [Overwrite(["x"]), {"__overwrite__": ["x"]}, {"type": "__overwrite__", "value": ["x"]}],
    ids=repr,
)
async def test_what_overwrites_is_validated_as_the_field(write: Any) -> None:
    assert (await graph({"kept": write}).ainvoke({"kept": [1]}))["kept"] == ["x"]
    with pytest.raises(ValidationError, match="Input should be a valid string"):
        await graph({"kept": Overwrite([1])}).ainvoke({})


async def test_other_channels_of_one_value_are_validated_and_queues_are_not() -> None:
    class Channels(BaseModel):
        secret: Annotated[int, UntrackedValue(int)] = 0
        queue: Annotated[list[int], Topic(int, accumulate=True)] = Field(default_factory=list)

    result = await graph({"secret": "1", "queue": "x"}, schema=Channels).ainvoke({})
    assert result == {"secret": 1, "queue": ["x"]}


def partial_hint(left: list[int], right: Nowhere) -> list[int]:  # type: ignore[name-defined]  # noqa: F821
    return [*left, *right]


async def test_a_reducer_whose_annotation_cannot_be_found_validates_nothing() -> None:
    class Unresolved(BaseModel):
        x: Annotated[list[int], partial_hint] = Field(default_factory=list)

    assert await graph({"x": ["a"]}, schema=Unresolved).ainvoke({}) == {"x": ["a"]}


class Pair(TypedDict):
    left: int


def pairs(left: list[Pair], right: list[Pair]) -> list[Pair]:
    return left + right


async def test_a_typed_dict_of_typing_serves_in_a_reducers_annotation() -> None:
    class Pairs(BaseModel):
        x: Annotated[list[Any], pairs] = Field(default_factory=list)

    assert await graph({"x": [{"left": "1"}]}, schema=Pairs).ainvoke({}) == {"x": [{"left": 1}]}


# Several schemas


async def test_what_another_schema_says_of_a_key_is_checked_when_its_node_reads_it() -> None:
    class Loose(TypedDict, total=False):
        name: Any

    class Strict(BaseModel):
        name: str

        @field_validator("name")
        @classmethod
        def upper(cls, value: str) -> str:
            return value.upper()

    seen: list[Any] = []
    builder = StateGraph(Loose, input_schema=Strict).add_node("a", seen.append).add_edge(START, "a")
    assert await builder.compile().ainvoke({"name": "x"}) == {"name": "X"}

    other = StateGraph(Strict, input_schema=Loose).add_node("a", seen.append).add_edge(START, "a")
    assert await other.compile().ainvoke({"name": "y"}) == {"name": "Y"}
    with pytest.raises(ValidationError) as refused:
        await other.compile().ainvoke({"name": 1})
    assert "While validating state key 'name' in the input of graph 'LangGraph'" in refused.value.__notes__


async def test_a_derived_model_does_not_validate_again_what_the_model_it_is_derived_from_did() -> None:
    class Given(BaseModel):
        x: int = 0

        @field_validator("x")
        @classmethod
        def more(cls, value: int) -> int:
            return value + 1

    class Whole(Given):
        y: int = 0

    result = await graph({"y": 1}, schema=Whole, input_schema=Given).ainvoke({"x": 1})
    assert result == {"x": 2, "y": 1}


# Limits


async def test_a_model_in_the_state_is_refused_by_a_saver_that_cannot_store_it() -> None:
    compiled = Pregel.from_plan(graph({"item": {"a": 1}}).plan, checkpointer=InMemorySaver())

    with pytest.raises(UnserializableValueError, match="item"):
        await compiled.ainvoke({}, thread())


def test_a_model_with_a_core_schema_of_its_own_is_refused() -> None:
    class Own(BaseModel):
        x: int = 0

        @classmethod
        def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
            return {"type": "any"}

    with pytest.raises(GraphValidationError, match="model Own makes a core schema of its own, 'any'"):
        graph(schema=Own)


def test_a_plain_graph_validates_nothing() -> None:
    class Plain(TypedDict):
        x: int

    plan = graph(schema=Plain).plan

    assert not plan.validators
    assert plan.accept is None
    assert plan.nodes["look"].reader is None
