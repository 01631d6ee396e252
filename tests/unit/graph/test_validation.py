"""A state that pydantic models declare: what is written is validated, once, where it is written."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable
from typing import Annotated, Any, Self, TypedDict

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from perdure.channels.topic import Topic
from perdure.channels.untracked_value import UntrackedValue
from perdure.checkpoint.memory import InMemorySaver
from perdure.constants import END, START
from perdure.data import Command, Overwrite, Send
from perdure.errors import (
    GraphValidationError,
    InvalidUpdateError,
    InvalidUpdateWarning,
    UnserializableValueError,
)
from perdure.graph.state import StateGraph
from perdure.managed import RemainingSteps
from perdure.pregel.graph import Pregel
from tests.unit.pregel.graphs import Gate, thread
from tests.unit.pregel.test_crashes import Scene

Action = Callable[[Any], Any]


class Item(BaseModel):
    a: int


def keep(left: list[int], right: list[int]) -> list[int]:
    return [*left, *right]


class State(BaseModel):
    name: str = "nobody"
    count: int = 0
    item: Item | None = None
    items: Annotated[list[Item], operator.add] = Field(default_factory=list)
    kept: Annotated[list[str], keep] = Field(default_factory=list)
    loose: Annotated[list[int], lambda left, right: left + right] = Field(default_factory=list)

    @field_validator("name")
    @classmethod
    def normal(cls, value: str) -> str:
        return value.strip().lower()


def returns(update: Any) -> Action:
    async def node(state: Any) -> Any:
        return update

    return node


def graph(*updates: Any, schema: Any = State, seen: list[Any] | None = None, **more: Any) -> Pregel:
    """Nodes that return `updates`, one after the other, and then one that notes what it is given."""
    builder = StateGraph(schema, **more)

    async def look(state: Any) -> None:
        if seen is not None:
            seen.append(state)

    before = START
    for number, update in enumerate(updates):
        builder.add_node(f"n{number}", update if callable(update) else returns(update))
        builder.add_edge(before, f"n{number}")
        before = f"n{number}"
    return builder.add_node("look", look).add_edge(before, "look").compile(name="checked")


# What nodes write


async def test_what_validators_make_of_a_value_is_stored_seen_and_returned() -> None:
    seen: list[Any] = []
    compiled = graph({"name": "  ADA ", "count": "3"}, seen=seen)
    stored = Pregel(compiled.plan, checkpointer=InMemorySaver())

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


# The input


async def test_an_input_is_validated_before_anything_is_stored() -> None:
    saver = InMemorySaver()
    compiled = Pregel(graph().plan, checkpointer=saver)
    with pytest.raises(ValidationError, match=r"for State\ncount") as refused:
        await compiled.ainvoke({"count": "x"}, thread())

    assert refused.value.__notes__ == ["While validating the input of graph 'checked'"]
    assert await saver.aget_tuple(thread()) is None


@pytest.mark.parametrize("given", [{"name": " ADA "}, State(name=" ADA ")], ids=["mapping", "model"])
async def test_only_what_an_input_sets_is_written(given: Any) -> None:
    assert await graph().ainvoke(given) == {"name": "ada", "items": [], "kept": [], "loose": []}


async def test_an_input_that_is_no_state_is_refused() -> None:
    for given in (5, [1], Command(update={}), Send("look", {})):
        with pytest.raises(InvalidUpdateError, match=r"Expected dict, got .*: the input of graph 'checked'"):
            await graph().ainvoke(given)


class Range(BaseModel):
    low: int
    high: int

    @model_validator(mode="after")
    def ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError("low is above high")
        return self


async def test_model_validators_run_on_an_input_and_on_reads() -> None:
    with pytest.raises(ValidationError, match="low is above high") as refused:
        await graph(schema=Range).ainvoke({"low": 2, "high": 1})
    assert refused.value.__notes__ == ["While validating the input of graph 'checked'"]

    with pytest.raises(ValidationError, match="low is above high") as unread:
        await graph({"low": 5}, schema=Range).ainvoke({"low": 0, "high": 1})
    assert any("Before task with name 'look'" in note for note in unread.value.__notes__)


async def test_an_input_to_a_thread_may_leave_out_what_the_thread_has() -> None:
    compiled = Pregel(graph(schema=Range).plan, checkpointer=InMemorySaver())
    await compiled.ainvoke({"low": 0, "high": 9}, thread())

    assert await compiled.ainvoke({"low": "5"}, thread()) == {"low": 5, "high": 9}
    with pytest.raises(ValidationError, match="low"):
        await compiled.ainvoke({"low": "x"}, thread())
    with pytest.raises(ValidationError, match="low is above high"):
        await compiled.ainvoke({"low": 10}, thread())


async def test_a_field_that_nobody_has_written_is_missed_by_who_reads_it() -> None:
    with pytest.raises(ValidationError, match="Field required") as refused:
        await graph(schema=Range).ainvoke({"low": 0})

    assert any("Before task with name 'look'" in note for note in refused.value.__notes__)


async def test_a_state_that_no_node_could_read_can_be_looked_at() -> None:
    compiled = Pregel(graph(schema=Range).plan, checkpointer=InMemorySaver())
    with pytest.raises(ValidationError):
        await compiled.ainvoke({"low": 0}, thread())

    snapshot = await compiled.aget_state(thread())
    assert (snapshot.values, snapshot.next) == ({"low": 0}, ("look",))


async def test_what_led_to_a_state_that_no_node_could_read_is_kept() -> None:
    compiled = Pregel(graph({"low": 5}, schema=Range).plan, checkpointer=InMemorySaver())
    with pytest.raises(ValidationError, match="low is above high"):
        await compiled.ainvoke({"low": 0, "high": 1}, thread())
    with pytest.raises(ValidationError, match="low is above high"):
        await compiled.ainvoke(None, thread())

    assert (await compiled.aget_state(thread())).values == {"low": 5, "high": 1}
    assert await compiled.ainvoke({"high": 7}, thread()) == {"low": 5, "high": 7}


class Legacy(BaseModel):
    name: str = ""
    seen: list[str] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def renamed(cls, given: Any) -> Any:
        if isinstance(given, dict) and "title" in given:
            given = {**given, "name": given["title"]}
            del given["title"]
        return given

    @model_validator(mode="wrap")
    @classmethod
    def noted(cls, given: Any, handler: Any) -> Any:
        model = handler(given)
        model.seen = [*model.seen, "wrapped"]
        return model


async def test_validators_before_and_around_a_model_may_change_what_comes_in() -> None:
    seen: list[Any] = []
    result = await graph(schema=Legacy, seen=seen).ainvoke({"title": "x"})

    assert result == {"name": "x", "seen": ["wrapped"]}
    assert seen[0] == Legacy.model_construct(name="x", seen=["wrapped", "wrapped"])


async def test_a_validator_around_a_model_may_hand_one_on() -> None:
    class Made(BaseModel):
        x: int = 0

        @model_validator(mode="wrap")
        @classmethod
        def made(cls, given: Any, handler: Any) -> Any:
            return handler(cls.model_construct(x=9) if given == {"x": 3} else given)

    assert await graph(schema=Made).ainvoke({"x": 3}) == {"x": 9}


async def test_an_unknown_key_of_an_input_is_warned_of_or_refused_as_the_model_says() -> None:
    class Forbids(BaseModel):
        model_config = ConfigDict(extra="forbid")
        name: str = ""

    with pytest.warns(InvalidUpdateWarning, match=r"The input wrote to 'naem'.*Did you mean 'name'"):
        await graph().ainvoke({"naem": "x"})
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        await graph(schema=Forbids).ainvoke({"naem": "x"})


async def test_an_alias_names_its_field_in_an_input() -> None:
    class Aliased(BaseModel):
        name: str = Field(alias="Name")

    seen: list[Any] = []
    assert await graph(schema=Aliased, seen=seen).ainvoke({"Name": "x"}) == {"name": "x"}
    assert await graph({"name": "y"}, schema=Aliased).ainvoke({"name": "x"}) == {"name": "y"}
    assert seen[0].name == "x"


async def test_a_model_may_hold_itself_private_attributes_and_fields_that_are_frozen() -> None:
    class Tree(BaseModel):
        model_config = ConfigDict(str_strip_whitespace=True)
        name: str = Field(default="", frozen=True)
        below: Tree | None = None
        _private: int = 3

    Tree.model_rebuild(_types_namespace={"Tree": Tree})
    seen: list[Any] = []
    result = await graph({"below": {"name": " b "}, "name": " c "}, schema=Tree, seen=seen).ainvoke({})

    assert (result["name"], result["below"].name, seen[0]._private) == ("c", "b", 3)


async def test_an_input_without_a_reduced_field_is_a_whole_model() -> None:
    calls: list[Any] = []

    class Reduced(BaseModel):
        items: Annotated[list[int], operator.add]

        @model_validator(mode="after")
        def checked(self) -> Self:
            calls.append(self.items)
            return self

    assert await graph(schema=Reduced).ainvoke({}) == {"items": []}
    assert calls == [[], []], "for the input, and for the node"


async def test_a_managed_value_of_a_model_is_asked_of_no_input() -> None:
    class Managed(BaseModel):
        name: str
        remaining: RemainingSteps

    seen: list[Any] = []
    await graph(schema=Managed, seen=seen).ainvoke({"name": "x"}, {"recursion_limit": 7})

    assert seen[0].remaining == 7


@pytest.mark.parametrize("durability", ["async", "exit"])
async def test_an_input_that_was_accepted_is_not_validated_again_after_a_crash(durability: Any) -> None:
    class Counts(BaseModel):
        x: int

        @field_validator("x")
        @classmethod
        def more(cls, value: int) -> int:
            return value + 1

    scene, gate = Scene(), Gate({})
    dying = Pregel(graph(gate, schema=Counts).plan, checkpointer=scene.saver, clock=scene.clock)
    run = asyncio.create_task(dying.ainvoke({"x": 1}, thread(), durability=durability))
    await scene.kill(run, gate)
    alive = Pregel(graph({}, schema=Counts).plan, checkpointer=scene.saver, clock=scene.clock)

    assert await alive.ainvoke(None, thread()) == {"x": 2}


async def test_a_child_graph_takes_its_parents_model() -> None:
    child = graph(lambda state: State(count=state.count + 1))

    async def node(state: State) -> Any:
        return await child.ainvoke(state)

    assert (await graph(node).ainvoke({"count": 1, "name": "X"}))["count"] == 2


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

    builder = StateGraph(Strict, input_schema=Loose).add_node("a", seen.append).add_edge(START, "a")
    assert await builder.compile().ainvoke({"name": "y"}) == {"name": "Y"}
    with pytest.raises(ValidationError) as refused:
        await builder.compile().ainvoke({"name": 1})
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
    compiled = Pregel(graph({"item": {"a": 1}}).plan, checkpointer=InMemorySaver())

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
