"""The input of a graph over pydantic models is validated as a whole, before anything is stored."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, Any, Self

import pytest
from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from perdure.checkpoint.memory import InMemorySaver
from perdure.constants import START
from perdure.data import Command, Send
from perdure.errors import (
    InvalidUpdateError,
    InvalidUpdateWarning,
)
from perdure.graph.state import StateGraph
from perdure.managed import RemainingSteps
from perdure.pregel.graph import Pregel
from tests.unit.graph.models import Range, State, graph
from tests.unit.pregel.graphs import Gate, returns, thread
from tests.unit.pregel.test_crashes import Scene


async def test_an_input_is_validated_before_anything_is_stored() -> None:
    saver = InMemorySaver()
    compiled = Pregel.from_plan(graph().plan, checkpointer=saver)
    with pytest.raises(ValidationError, match=r"for State\ncount") as refused:
        await compiled.ainvoke({"count": "x"}, thread())

    assert refused.value.__notes__ == ["While validating the input of graph 'checked'"]
    assert await saver.aget_tuple(thread()) is None


@pytest.mark.parametrize("given", [{"name": " ADA "}, State(name=" ADA ")], ids=["mapping", "model"])
async def test_only_what_an_input_sets_is_written(given: Any) -> None:
    assert await graph().ainvoke(given) == {"name": "ada", "items": [], "kept": [], "loose": []}


async def test_an_input_that_is_no_state_is_refused() -> None:
    for given in (5, [1], Send("look", {})):
        with pytest.raises(InvalidUpdateError, match=r"Expected dict, got .*: the input of graph 'checked'"):
            await graph().ainvoke(given)


async def test_model_validators_run_on_an_input_and_on_reads() -> None:
    with pytest.raises(ValidationError, match="low is above high") as refused:
        await graph(schema=Range).ainvoke({"low": 2, "high": 1})
    assert refused.value.__notes__ == ["While validating the input of graph 'checked'"]

    with pytest.raises(ValidationError, match="low is above high") as unread:
        await graph({"low": 5}, schema=Range).ainvoke({"low": 0, "high": 1})
    assert any("Before task with name 'look'" in note for note in unread.value.__notes__)


async def test_an_input_to_a_thread_may_leave_out_what_the_thread_has() -> None:
    compiled = Pregel.from_plan(graph(schema=Range).plan, checkpointer=InMemorySaver())
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


async def test_a_required_field_that_is_added_while_a_thread_waits_is_named_until_it_is_written() -> None:
    class Before(BaseModel):
        low: int = 0

    class Now(Before):
        user: str

    async def fails(state: Any) -> None:
        raise RuntimeError("not yet")

    def compiled(schema: type[Before], action: Any) -> Pregel:
        builder = StateGraph(schema).add_node("look", action).add_edge(START, "look")
        return builder.compile(checkpointer=saver)

    saver = InMemorySaver()
    with pytest.raises(RuntimeError, match="not yet"):
        await compiled(Before, fails).ainvoke({"low": 1}, thread())
    changed = compiled(Now, returns({"low": 2}))
    for _ in range(2):
        with pytest.raises(ValidationError, match=r"user\n  Field required"):
            await changed.ainvoke(None, thread())

    assert (await changed.aget_state(thread())).next == ("look",)
    told = Command(update={"user": "u"})
    assert await changed.ainvoke(told, thread()) == {"low": 2, "user": "u"}


async def test_a_state_that_no_node_could_read_can_be_looked_at() -> None:
    compiled = Pregel.from_plan(graph(schema=Range).plan, checkpointer=InMemorySaver())
    with pytest.raises(ValidationError):
        await compiled.ainvoke({"low": 0}, thread())

    snapshot = await compiled.aget_state(thread())
    assert (snapshot.values, snapshot.next) == ({"low": 0}, ("look",))


async def test_what_led_to_a_state_that_no_node_could_read_is_kept() -> None:
    compiled = Pregel.from_plan(graph({"low": 5}, schema=Range).plan, checkpointer=InMemorySaver())
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


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"first": "a", "second": "b"}, "a"),
        ({"second": "b"}, "b"),
        ({"person": {"names": ["x", "y"]}}, "y"),
        ({"person": {"names": ["x"]}}, "nobody"),
        ({"name": "n"}, "n"),
        ({}, "nobody"),
    ],
)
async def test_a_field_is_found_under_the_first_of_its_aliases_that_is_there(given: Any, name: str) -> None:
    class Aliased(BaseModel):
        name: str = Field(
            "nobody", validation_alias=AliasChoices("first", "second", AliasPath("person", "names", 1))
        )

    seen: list[Any] = []

    async def look(state: Aliased) -> None:
        seen.append(state.name)

    await StateGraph(Aliased).add_node("look", look).add_edge(START, "look").compile().ainvoke(given)

    assert seen == [name]


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
    dying = Pregel.from_plan(graph(gate, schema=Counts).plan, checkpointer=scene.saver, clock=scene.clock)
    run = asyncio.create_task(dying.ainvoke({"x": 1}, thread(), durability=durability))
    await scene.kill(run, gate)
    alive = Pregel.from_plan(graph({}, schema=Counts).plan, checkpointer=scene.saver, clock=scene.clock)

    assert await alive.ainvoke(None, thread()) == {"x": 2}


async def test_a_child_graph_takes_its_parents_model() -> None:
    child = graph(lambda state: State(count=state.count + 1))

    async def node(state: State) -> Any:
        return await child.ainvoke(state)

    assert (await graph(node).ainvoke({"count": 1, "name": "X"}))["count"] == 2
