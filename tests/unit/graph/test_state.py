"""Describing a graph: what is refused, and what compile() makes of it."""

from __future__ import annotations

import logging
import operator
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal, TypedDict

import pytest

from perdure.constants import END, RESERVED_NODE_NAMES, START
from perdure.errors import GraphValidationError, PerdureDeprecationWarning
from perdure.graph.registration import register
from perdure.graph.state import StateGraph
from perdure.managed import IsLastStep, RemainingSteps
from perdure.pregel.plan.plan import Calling


class State(TypedDict, total=False):
    x: int
    items: Annotated[list[int], operator.add]


async def node(state: State) -> State:
    return {}


def builder(*names: str) -> StateGraph:
    graph = StateGraph(State)
    for name in names:
        graph.add_node(name, node)
    return graph


def to_unknown(state: State) -> Literal["a", "nowhere"]:
    return "a"


REFUSED_BY_COMPILE: dict[str, tuple[Callable[[], StateGraph], str]] = {
    "edge from an unknown node": (
        lambda: builder("a").add_edge(START, "a").add_edge("ghost", "a"),
        "Found edge starting at unknown node 'ghost'. Known: a.",
    ),
    "branch from an unknown node": (
        lambda: builder("a").add_edge(START, "a").add_conditional_edges("ghost", lambda s: "a"),
        "Found edge starting at unknown node 'ghost'",
    ),
    "branch from END": (
        lambda: builder("a").add_edge(START, "a").add_conditional_edges(END, lambda s: "a"),
        "Found edge starting at unknown node '__end__'",
    ),
    "no way in": (
        lambda: builder("a").add_edge("a", END),
        "Graph must have an entrypoint: add at least one edge from START to another node",
    ),
    "nothing at all": (builder, "Graph must have an entrypoint"),
    "edge to an unknown node": (
        lambda: builder("host").add_edge(START, "host").add_edge("host", "ghost"),
        "Found edge ending at unknown node `ghost`, which 'host' leads to. Did you mean 'host'?",
    ),
    "map to an unknown node": (
        lambda: builder("a").add_edge(START, "a").add_conditional_edges("a", lambda s: 1, {1: "ghost"}),
        "At 'a' node, 'condition' branch found unknown target 'ghost'. Known: a.",
    ),
    "list with an unknown node": (
        lambda: builder("a").add_edge(START, "a").add_conditional_edges("a", lambda s: "b", ["a", "ghost"]),
        "At 'a' node, 'condition' branch found unknown target 'ghost'",
    ),
    "Literal with an unknown node": (
        lambda: builder("a").add_edge(START, "a").add_conditional_edges("a", to_unknown),
        "At 'a' node, 'to_unknown' branch found unknown target 'nowhere'",
    ),
}


@pytest.mark.parametrize(("describe", "message"), REFUSED_BY_COMPILE.values(), ids=REFUSED_BY_COMPILE)
def test_compile_refuses(describe: Callable[[], StateGraph], message: str) -> None:
    with pytest.raises(GraphValidationError) as refused:
        describe().compile()

    assert str(refused.value).startswith(message)
    assert isinstance(refused.value, ValueError)


REFUSED_AT_ONCE: dict[str, tuple[Callable[[], StateGraph], str]] = {
    "END as a start": (lambda: builder("a").add_edge(END, "a"), "END cannot be a start node"),
    "END among starts": (lambda: builder("a").add_edge(["a", END], "a"), "END cannot be a start node"),
    "START as an end": (lambda: builder("a").add_edge("a", START), "START cannot be an end node"),
    "START as the end of a join": (
        lambda: builder("a", "b").add_edge(["a", "b"], START),
        "START cannot be an end node",
    ),
    "a join from START": (
        lambda: builder("a").add_edge([START], "a"),
        "Need to add_node `__start__` first: a join waits for nodes, and START is none. Leave it out.",
    ),
    "several ends": (
        lambda: builder("a", "b").add_edge(START, ["a", "b"]),  # type: ignore[arg-type]
        "An edge ends at one node, but the edge from '__start__' ends at ['a', 'b']. Call add_edge once",
    ),
    "a function as an end": (
        lambda: builder().add_node(node).add_edge(START, node),  # type: ignore[arg-type]
        "An edge ends at a node's name, but the edge from '__start__' ends at <function node",
    ),
    "a function as a start": (
        lambda: builder().add_node(node).add_edge(node, END),  # type: ignore[arg-type]
        "An edge starts at a node's name, or at a list of names; got <function node",
    ),
    "a join from an unknown node": (
        lambda: builder("a").add_edge(["a", "ghost"], "a"),
        "Need to add_node `ghost` first",
    ),
    "a join to an unknown node": (
        lambda: builder("a").add_edge(["a"], "ghost"),
        "Need to add_node `ghost` first",
    ),
    "a join of nothing": (lambda: builder("a").add_edge([], "a"), "An edge needs at least one node to start"),
    "a dict as a schema": (
        lambda: StateGraph({"x": int}),
        "{'x': <class 'int'>} cannot be a schema: unhashable type: 'dict'. Declare a TypedDict",
    ),
    "a dict as a node's schema": (
        lambda: StateGraph(State).add_node("a", node, input_schema={"x": int}),
        "{'x': <class 'int'>} cannot be a schema",
    ),
    "a node twice": (lambda: builder("a", "a"), "Node `a` already present."),
    "a node named START": (lambda: builder(START), "Node `__start__` is reserved."),
    "a node named END": (lambda: builder(END), "Node `__end__` is reserved."),
    "a | in a name": (
        lambda: builder("a|b"),
        "'|' is a reserved character and is not allowed in the node names",
    ),
    "a : in a name": (
        lambda: builder("a:b"),
        "':' is a reserved character and is not allowed in the node names",
    ),
    "no action": (lambda: StateGraph(State).add_node("a"), "Node 'a' has no action"),
    "an action that cannot be called": (lambda: StateGraph(State).add_node("a", 5), "Node 'a' is 5"),  # type: ignore[arg-type]
    "two branches of one name": (
        lambda: (
            builder("a").add_conditional_edges("a", lambda s: "a").add_conditional_edges("a", lambda s: "a")
        ),
        "Branch with name `condition` already exists for node `a`",
    ),
}


@pytest.mark.parametrize(("describe", "message"), REFUSED_AT_ONCE.values(), ids=REFUSED_AT_ONCE)
def test_describing_refuses(describe: Callable[[], StateGraph], message: str) -> None:
    with pytest.raises(GraphValidationError) as refused:
        describe()

    assert str(refused.value).startswith(message)


@pytest.mark.parametrize("name", sorted(RESERVED_NODE_NAMES))
def test_names_that_the_engine_writes_are_reserved(name: str) -> None:
    with pytest.raises(GraphValidationError, match=f"Node `{name}` is reserved"):
        builder(name)


@pytest.mark.parametrize("checkpointer", [object(), "memory", True, 1])
def test_what_is_not_a_saver_is_refused(checkpointer: Any) -> None:
    with pytest.raises(
        TypeError, match=r"Invalid checkpointer provided\. Expected an instance of `BaseCheck"
    ):
        builder("a").add_edge(START, "a").compile(checkpointer=checkpointer)


def test_a_key_with_two_reducers_is_refused() -> None:
    class Other(TypedDict):
        items: Annotated[list[int], operator.iadd]

    with pytest.raises(GraphValidationError, match="Channel 'items' already exists with a different type"):
        StateGraph(State, input_schema=Other)


def test_a_plain_key_in_a_later_schema_leaves_the_reducer() -> None:
    class Plain(TypedDict):
        items: list[int]

    graph = StateGraph(State, input_schema=Plain)

    assert type(graph.channels["items"]).__name__ == "BinaryOperatorAggregate"


def test_a_node_may_be_named_after_a_state_key_and_need_not_be_reachable_or_lead_anywhere() -> None:
    plan = builder("x", "island").add_edge(START, "x").compile().plan

    assert list(plan.nodes) == [START, "x", "island"]


def test_nodes_are_named_after_their_functions() -> None:
    assert list(StateGraph(State).add_node(node).nodes) == ["node"]


def test_what_is_added_after_compile_is_logged_and_does_not_reach_the_compiled_graph(
    caplog: pytest.LogCaptureFixture,
) -> None:
    graph = builder("a").add_edge(START, "a")
    compiled = graph.compile()
    with caplog.at_level(logging.WARNING, "perdure"):
        graph.add_node("b", node).add_edge("a", "b").add_conditional_edges("b", lambda s: END)

    assert [record.getMessage() for record in caplog.records] == [
        "Adding a node to a graph that has been compiled does not change what was compiled.",
        "Adding a edge to a graph that has been compiled does not change what was compiled.",
        "Adding a edge to a graph that has been compiled does not change what was compiled.",
    ]
    assert list(compiled.plan.nodes) == [START, "a"]
    assert compiled.plan.nodes["a"].edges == ()
    assert "b" in graph.compile().plan.nodes


def test_a_plan_knows_what_each_channel_starts() -> None:
    plan = (
        builder("a", "b", "c")
        .add_edge(START, "a")
        .add_edge(START, "b")
        .add_edge(["a", "b"], "c")
        .compile()
        .plan
    )

    assert plan.triggered == {
        START: (START,),
        "branch:to:a": ("a",),
        "branch:to:b": ("b",),
        "branch:to:c": ("c",),
        "join:a+b:c": ("c",),
    }
    assert plan.nodes["a"].edges == (("join:a+b:c", "a"),)
    assert plan.nodes[START].calling is Calling.INPUT
    assert plan.initial == ("items",)


def test_the_signature_changes_with_nodes_and_channels_and_with_nothing_else() -> None:
    class Other(TypedDict):
        items: list[int]

    one = builder("a", "b").add_edge(START, "a").compile().plan.signature

    assert builder("b", "a").add_edge(START, "b").compile(name="other").plan.signature == one
    assert builder("a").add_edge(START, "a").compile().plan.signature != one
    assert (
        StateGraph(Other)
        .add_node("a", lambda state: None)
        .add_node("b", lambda state: None)
        .add_edge(START, "a")
        .compile()
        .plan.signature
        != one
    )


def test_joins_whose_names_would_run_together_are_kept_apart() -> None:
    graph = (
        builder("a", "b", "a+b", "c").add_edge(START, "a").add_edge(["a", "b"], "c").add_edge(["a+b"], "c")
    )

    with pytest.raises(GraphValidationError, match=r"'join:a\+b:c'"):
        graph.compile()


def test_what_opens_a_saver_is_not_taken_for_one() -> None:
    @asynccontextmanager
    async def opens() -> AsyncIterator[None]:
        yield

    builder = StateGraph(State).add_node("a", lambda state: None).add_edge(START, "a")
    with pytest.raises(TypeError, match=r"async with .* as saver"):
        builder.compile(opens())  # type: ignore[arg-type]


# Schemas


class Narrow(TypedDict):
    x: int


class Steps(TypedDict, total=False):
    x: int
    remaining: RemainingSteps
    last: IsLastStep


def test_schemas_are_kept_with_what_they_declare() -> None:
    graph = StateGraph(State, input_schema=Narrow)

    assert list(graph.schemas) == [State, Narrow]
    assert [list(cells) for cells in graph.schemas.values()] == [["x", "items"], ["x"]]
    assert (graph.input_schema, graph.output_schema, graph.context_schema) == (Narrow, State, None)


@pytest.mark.parametrize("keyword", ["input_schema", "output_schema"])
def test_managed_values_are_refused_in_an_input_and_an_output(keyword: str) -> None:
    with pytest.raises(
        GraphValidationError,
        match=r"^Invalid managed channels detected in Steps: remaining, last\. Managed channels are not "
        r"permitted in Input/Output schema\.$",
    ):
        StateGraph(State, **{keyword: Steps})


def test_a_state_with_managed_values_serves_as_its_own_input_and_output() -> None:
    graph = StateGraph(Steps)

    assert list(graph.managed) == ["remaining", "last"]
    assert list(graph.channels) == ["x"]


def test_a_key_that_is_managed_in_two_ways_is_refused() -> None:
    class Other(TypedDict):
        remaining: IsLastStep

    graph = StateGraph(Steps)
    with pytest.raises(GraphValidationError, match="Managed value 'remaining' already exists"):
        register(graph, Other)


def test_a_managed_key_that_is_plain_in_a_later_schema_stays_managed() -> None:
    class Plain(TypedDict):
        remaining: int

    graph = StateGraph(Steps)
    register(graph, Plain)

    assert "remaining" not in graph.channels
    with pytest.raises(GraphValidationError, match="Managed value 'x' already exists with a different type"):
        register(graph, TypedDict("Managed", {"x": RemainingSteps}))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("old", "new"),
    [("input", "input_schema"), ("output", "output_schema"), ("config_schema", "context_schema")],
)
def test_old_names_of_schemas_still_serve_and_warn(old: str, new: str) -> None:
    with pytest.warns(PerdureDeprecationWarning, match=f"`{old}` is deprecated: write `{new}`") as warned:
        graph = StateGraph(State, **{old: Narrow})
    assert warned[0].filename == __file__
    assert getattr(graph, new) is Narrow

    with pytest.raises(GraphValidationError, match=f"`{old}` is an older name of `{new}`: give one of them"):
        StateGraph(State, **{old: Narrow, new: Narrow})


def test_an_unknown_keyword_is_refused_with_the_nearest() -> None:
    with pytest.raises(TypeError, match=r"keyword argument 'input_shema'\. Did you mean 'input_schema'\?"):
        StateGraph(State, input_shema=Narrow)  # type: ignore[call-overload]


def test_a_schema_of_a_bare_value_is_refused_where_the_state_has_keys() -> None:
    with pytest.raises(GraphValidationError, match=r"^int is the type of a bare value, but the state"):
        StateGraph(State).add_node("a", node, input_schema=int)


def test_what_is_no_cache_is_refused() -> None:
    graph = StateGraph(State).add_node("a", node).add_edge(START, "a")
    wrongs: tuple[Any, ...] = (True, {})
    for wrong in wrongs:
        with pytest.raises(TypeError, match="Invalid cache provided"):
            graph.compile(cache=wrong)
