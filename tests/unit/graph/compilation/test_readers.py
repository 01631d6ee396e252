"""The input of nodes for each kind of schema, and the objects that they return."""

from __future__ import annotations

import asyncio
import dataclasses
import operator
from typing import Annotated, Any, NamedTuple, TypedDict

import pytest
import typing_extensions
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import BaseModel

from perdure.checkpoint.memory import InMemorySaver
from perdure.constants import START
from perdure.data import Command
from perdure.errors import InvalidUpdateError, InvalidUpdateWarning
from perdure.graph.registration import register
from perdure.graph.state import StateGraph
from perdure.managed import IsLastStep, RemainingSteps
from perdure.pregel.graph import Pregel
from perdure.runtime import get_runtime
from perdure.testing.exact import exactly_equal
from tests.unit.pregel.graphs import ends, returns, thread


@dataclasses.dataclass
class Data:
    x: int
    items: Annotated[list[int], operator.add] = dataclasses.field(default_factory=lambda: [0])
    name: str = "nobody"
    nothing: str | None = None


def seeing(
    schema: Any, *, name: str = "LangGraph", returned: Any = None, **more: Any
) -> tuple[Pregel, list[Any]]:
    """Build a node that returns `returned`, and one that records its input."""
    seen: list[Any] = []
    builder = StateGraph(schema, **more).add_node("a", returns(returned)).add_edge(START, "a")
    builder.add_node("b", seen.append).add_edge("a", "b")
    return builder.compile(name=name), seen


async def test_a_node_over_a_dataclass_is_given_an_instance_with_its_defaults() -> None:
    graph, seen = seeing(Data)

    assert await graph.ainvoke({"x": 1, "items": [1]}) == {"x": 1, "items": [0, 1]}
    assert seen == [Data(x=1, items=[0, 1])]


async def test_a_missing_field_without_a_default_fails_before_the_node() -> None:
    graph, _ = seeing(Data)
    with pytest.raises(TypeError, match="x") as refused:
        await graph.ainvoke({})

    assert any("Before task with name 'a'" in note for note in refused.value.__notes__)


async def test_a_path_over_a_dataclass_is_given_an_instance() -> None:
    seen: list[Any] = []
    builder = StateGraph(Data).add_node("a", returns({"x": 2})).add_edge(START, "a")
    graph = builder.add_conditional_edges("a", ends(seen)).compile()

    await graph.ainvoke({"x": 1})
    assert seen == [Data(x=2)]


async def test_runs_do_not_share_a_default() -> None:
    graph, seen = seeing(Data)
    await graph.ainvoke({"x": 1})
    seen[0].items.append("changed")
    graph.plan.channels["items"].get().append("changed too")

    await graph.ainvoke({"x": 1})
    assert seen[1] == Data(x=1)


async def test_a_default_is_kept_with_the_thread() -> None:
    graph, _ = seeing(Data, returned={"items": [5]})
    stored = Pregel.from_plan(graph.plan, checkpointer=InMemorySaver())

    for expected in ([0, 5], [0, 5, 5], [0, 5, 5, 5]):
        assert (await stored.ainvoke({"x": 1}, thread()))["items"] == expected
        assert (await stored.aget_state(thread())).values["items"] == expected


async def test_an_input_may_be_an_object() -> None:
    graph, seen = seeing(Data)

    assert await graph.ainvoke(Data(x=3)) == {"x": 3, "items": [0, 0], "name": "nobody"}
    assert seen == [Data(x=3, items=[0, 0])]


class Plain:
    x: int = 0
    name: str | None = None
    unset: int


class Tuple(NamedTuple):
    x: int
    name: str | None = None


class Model(BaseModel):
    x: int = 0
    name: str | None = None
    other: int = 0


def plain(**attributes: Any) -> Plain:
    instance = Plain()
    for name, value in attributes.items():
        setattr(instance, name, value)
    return instance


OBJECTS: list[tuple[Any, dict[str, Any]]] = [
    (Data(x=2), {"x": 2, "items": [0, 1, 0], "name": "nobody"}),
    (Data(x=2, name=None), {"x": 2, "items": [0, 1, 0], "name": None}),  # type: ignore[arg-type]
    (plain(), {"x": 0, "items": [0, 1]}),
    (plain(x=None, name="n"), {"x": None, "items": [0, 1], "name": "n"}),
    (Tuple(4), {"x": 4, "items": [0, 1]}),
    (Model(name=None), {"x": 1, "items": [0, 1], "name": None}),
    (Model(x=5, other=6), {"x": 5, "items": [0, 1]}),
    (Model(), {"x": 1, "items": [0, 1]}),
]


@pytest.mark.parametrize("wrap", [lambda update: update, lambda update: Command(update=update)])
@pytest.mark.parametrize(("returned", "result"), OBJECTS, ids=[repr(given) for given, _ in OBJECTS])
async def test_an_object_writes_its_annotated_attributes(returned: Any, result: Any, wrap: Any) -> None:
    class State(TypedDict, total=False):
        x: Any
        items: Annotated[list[int], lambda left, right: left + right]
        name: Any

    graph, _ = seeing(State, returned=wrap(returned))

    assert await graph.ainvoke({"x": 1, "items": [0, 1]}) == result


async def test_an_object_that_has_nothing_of_the_state_is_warned_of() -> None:
    @dataclasses.dataclass
    class Response:
        status: int = 200

    graph, _ = seeing(Data, name="response", returned=Response())
    with pytest.warns(
        InvalidUpdateWarning, match="'a' returned a Response, none of whose attributes is a key of the state"
    ):
        await graph.ainvoke({"x": 1})

    strict = Pregel.from_plan(dataclasses.replace(graph.plan, strict=True))
    with pytest.raises(InvalidUpdateError, match="Node 'a' returned a Response"):
        await strict.ainvoke({"x": 1})


async def test_a_strict_graph_refuses_a_misspelt_key_with_the_nearest() -> None:
    graph, _ = seeing(Data, returned={"itmes": [1]})
    strict = Pregel.from_plan(dataclasses.replace(graph.plan, strict=True), checkpointer=InMemorySaver())

    with pytest.raises(
        InvalidUpdateError,
        match=r"^Node 'a' wrote to 'itmes', which is not a key of the state\. Did you mean 'items'\?",
    ):
        await strict.ainvoke({"x": 1}, thread("1"))
    with pytest.raises(
        InvalidUpdateError, match=r"^The input wrote to 'xx', which is not a key of the input .*'x'\?"
    ):
        await strict.ainvoke({"xx": 1}, thread("2"))
    assert (await strict.aget_state(thread("2"))).config["configurable"].get("checkpoint_id") is None


# Schemas of single nodes


class Part(TypedDict):
    name: str
    x: int


class Private(typing_extensions.TypedDict, total=False):
    secret: str
    x: int


async def test_a_node_with_a_schema_of_its_own_is_given_the_keys_of_it_in_order() -> None:
    builder = StateGraph(Data)
    register(builder, Part)
    builder.add_node("a", returns({})).add_edge(START, "a")
    seen: list[Any] = []
    builder.nodes["a"] = dataclasses.replace(builder.nodes["a"], input_schema=Part, action=_notes(seen))

    await builder.compile().ainvoke({"x": 1, "items": [5], "name": "n"})
    assert seen == [{"name": "n", "x": 1}]
    assert list(seen[0]) == ["name", "x"]


def _notes(seen: list[Any]) -> Any:
    async def node(state: Any) -> None:
        seen.append(state)

    return node


async def test_private_keys_are_of_the_state_but_not_of_the_result() -> None:
    builder = StateGraph(Part)
    register(builder, Private)
    register(builder, Private)
    builder.add_node("a", returns({"secret": "s"})).add_edge(START, "a")
    graph = builder.compile(checkpointer=InMemorySaver())

    assert dict(await graph.ainvoke({"name": "n"}, thread())) == {"name": "n"}
    assert (await graph.aget_state(thread())).values == {"name": "n", "secret": "s"}
    with pytest.warns(InvalidUpdateWarning, match="The input wrote to 'secret'"):
        await graph.ainvoke({"secret": "x"}, thread())


async def test_a_branch_with_a_schema_of_its_own_is_given_that() -> None:
    seen: list[Any] = []
    builder = StateGraph(Part).add_node("a", returns({"x": 2})).add_edge(START, "a")
    register(builder, Data)
    builder.add_conditional_edges("a", ends(seen))
    [(name, branch)] = builder.branches["a"].items()
    builder.branches["a"][name] = dataclasses.replace(branch, input_schema=Data)

    await builder.compile().ainvoke({"name": "n", "x": 1})
    assert seen == [Data(x=2, name="n")]


# Values on their way


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text(), inner) | st.frozensets(st.text())
    ),
    max_leaves=8,
)


class AnyDict(TypedDict, total=False):
    x: Any


@dataclasses.dataclass
class AnyData:
    x: Any


class AnyModel(BaseModel):
    x: Any


@given(value=VALUES, schema=st.sampled_from([AnyDict, AnyData, AnyModel, object]))
def test_a_value_is_stored_seen_and_returned_as_it_was_given(value: Any, schema: Any) -> None:
    graph, seen = seeing(schema)
    stored = Pregel.from_plan(graph.plan, checkpointer=InMemorySaver())
    whole = {object: value}.get(schema, {"x": value})
    assume(whole is not None)

    async def run() -> Any:
        result = await stored.ainvoke(whole, thread())
        return result, (await stored.aget_state(thread())).values

    result, values = asyncio.run(run())
    told = seen[0] if schema in (object, AnyDict) else {"x": seen[0].x}
    for other in (result, values, told):
        assert exactly_equal(other, whole)


# Managed values


class Steps(TypedDict, total=False):
    x: int
    last: IsLastStep
    remaining: RemainingSteps


async def test_nodes_and_paths_are_told_how_many_supersteps_remain() -> None:
    seen: list[Any] = []
    builder = StateGraph(Steps).add_node("a", _notes(seen)).add_node("b", _notes(seen))
    builder.add_edge(START, "a").add_conditional_edges("a", ends(seen, "b"))
    result = await builder.compile().ainvoke({"x": 1}, {"recursion_limit": 2})

    told = [(state["x"], state["remaining"], state["last"]) for state in seen]
    assert told == [(1, 2, False), (1, 2, False), (1, 1, True)]
    assert result == {"x": 1}, "a managed value is no part of the result"


async def test_a_managed_value_cannot_be_written() -> None:
    graph, seen = seeing(Steps, name="managed", returned={"remaining": 100})
    with pytest.warns(InvalidUpdateWarning, match="Node 'a' wrote to 'remaining'"):
        await graph.ainvoke({"x": 1}, {"recursion_limit": 5})

    assert seen[0]["remaining"] == 4


async def test_a_dataclass_may_have_managed_values() -> None:
    @dataclasses.dataclass
    class State:
        x: int
        remaining: Annotated[int, RemainingSteps.__metadata__[0]]

    State.__annotations__ = {"x": int, "remaining": RemainingSteps}
    graph, seen = seeing(State)
    await graph.ainvoke({"x": 1}, {"recursion_limit": 5})

    assert seen == [State(1, 4)]


# The context


@dataclasses.dataclass
class Settings:
    user: str
    limit: int = 3


class SettingsModel(BaseModel):
    user: str
    limit: int = 3


class SettingsDict(TypedDict):
    user: str


@pytest.mark.parametrize(
    ("schema", "given", "context"),
    [
        (Settings, {"user": "u"}, Settings("u")),
        (Settings, Settings("u", 1), Settings("u", 1)),
        (SettingsModel, {"user": "u", "limit": "5"}, SettingsModel(user="u", limit=5)),
        (SettingsDict, {"user": "u"}, {"user": "u"}),
        (None, {"user": "u"}, {"user": "u"}),
        (Settings, None, None),
    ],
    ids=repr,
)
async def test_a_context_is_made_as_its_schema_says(schema: Any, given: Any, context: Any) -> None:
    seen: list[Any] = []

    async def node(state: Any) -> None:
        seen.append(get_runtime().context)

    graph = StateGraph(Part, schema).add_node("a", node).add_edge(START, "a").compile()
    await graph.ainvoke({}, context=given)

    assert seen == [context]


async def test_a_context_that_does_not_fit_is_refused_by_schema() -> None:
    graph = (
        StateGraph(Part, context_schema=Settings).add_node("a", returns({})).add_edge(START, "a").compile()
    )

    with pytest.raises(TypeError, match="usr") as refused:
        await graph.ainvoke({}, context={"usr": "u"})
    assert refused.value.__notes__ == ["While making a Settings of the context that was given"]
