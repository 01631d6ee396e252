"""The parameters of add_node and set_node_defaults take effect, and meaningless values are refused."""

from __future__ import annotations

import functools
from typing import Any, Literal, TypedDict

import pytest

from perdure.constants import END, START
from perdure.data import Command, RetryPolicy
from perdure.errors import GraphValidationError, NodeSignatureError, PerdureDeprecationWarning
from perdure.graph.state import StateGraph
from tests.unit.pregel.graphs import Log, logs


class Part(TypedDict, total=False):
    x: int
    private: str


class Other(TypedDict, total=False):
    other: str


async def reads_part(state: Part) -> None: ...


def builder(*names: str) -> StateGraph:
    graph = StateGraph(Log)
    for name in names:
        graph.add_node(name, logs(name))
    return graph


# add_node


def test_defer_and_metadata_are_kept() -> None:
    graph = StateGraph(Log).add_node("a", logs("a"), defer=True, metadata={"owner": "me"})

    assert graph.nodes["a"].defer
    assert not builder("a").nodes["a"].defer
    assert graph.add_edge(START, "a").compile().plan.nodes["a"].metadata == {"owner": "me"}


def test_the_input_schema_is_what_the_first_parameter_says_unless_another_is_given() -> None:
    inferred = StateGraph(Log).add_node("a", reads_part)
    given = StateGraph(Log).add_node("a", reads_part, input_schema=Other)

    assert inferred.nodes["a"].input_schema is Part
    assert list(inferred.channels) == ["log", "x", "y", "private"]
    assert given.nodes["a"].input_schema is Other
    assert list(given.channels) == ["log", "x", "y", "other"]


def test_the_state_itself_as_an_input_schema_is_nothing_to_say() -> None:
    assert builder("a").nodes["a"].input_schema is None
    assert StateGraph(Log).add_node("a", reads_part, input_schema=Log).nodes["a"].input_schema is None


def test_a_handler_reads_what_its_node_reads() -> None:
    graph = StateGraph(Log).add_node("a", reads_part, error_handler=logs("h"))
    said = StateGraph(Log).add_node("a", logs("a"), input_schema=Other, error_handler=reads_part)

    assert graph.nodes["__error_handler__a"].input_schema is Part
    assert said.nodes["__error_handler__a"].input_schema is Other


def goes(state: Log) -> Command[Literal["b", "__end__"]]:
    return Command(goto="b")


def test_destinations_are_those_that_are_given_or_else_those_of_the_annotation() -> None:
    def declared(**more: Any) -> Any:
        return StateGraph(Log).add_node("a", goes, **more).nodes["a"].destinations

    assert declared() == {"b": None, END: None}
    assert declared(destinations=("c",)) == {"c": None}
    assert declared(destinations={"c": "when cold"}) == {"c": "when cold"}
    assert declared(destinations=()) == {}
    assert builder("a").nodes["a"].destinations is None


@pytest.mark.parametrize("destinations", [None, ("gone",), {"gone": "label"}])
def test_a_declared_destination_must_exist(destinations: Any) -> None:
    graph = StateGraph(Log).add_node("a", goes, destinations=destinations).add_edge(START, "a")
    with pytest.raises(
        GraphValidationError,
        match=r"Node 'a' declares that it goes to '(b|gone)', which is not a node\..* around this "
        r"one: annotate `Command\[str\]`, or add the node with destinations=\(\)",
    ):
        graph.compile()


async def test_a_node_may_go_where_it_did_not_declare_to_go() -> None:
    def elsewhere(state: Log) -> Command[Literal["b"]]:
        return Command(goto="c")  # type: ignore[arg-type]  # not what it declares

    graph = builder("b", "c").add_node("a", elsewhere).add_edge(START, "a").compile()

    assert (await graph.ainvoke({}))["log"] == ["c"]


def test_a_text_is_no_list_of_destinations() -> None:
    with pytest.raises(GraphValidationError, match="destinations is the text 'b'; expected a tuple of names"):
        StateGraph(Log).add_node("a", goes, destinations="b")


@pytest.mark.parametrize("name", ["__error_handler__a", "__default_error_handler__"])
def test_the_names_of_handlers_are_reserved(name: str) -> None:
    with pytest.raises(GraphValidationError, match=f"Node `{name}` is reserved"):
        builder(name)


def test_older_names_of_parameters_are_taken_with_a_warning() -> None:
    once = RetryPolicy(max_attempts=1)
    with pytest.warns(
        PerdureDeprecationWarning, match="`retry` is deprecated: write `retry_policy`"
    ) as warned:
        graph = StateGraph(Log).add_node("a", logs("a"), retry=once)
    assert warned[0].filename == __file__
    with pytest.warns(PerdureDeprecationWarning, match="`input` is deprecated: write `input_schema`"):
        graph.add_node("b", logs("b"), input=Other)

    assert graph.nodes["a"].retry_policy == (once,)
    assert graph.nodes["b"].input_schema is Other


def test_both_names_of_a_parameter_are_refused() -> None:
    with pytest.raises(GraphValidationError, match="`input` is an older name of `input_schema`: give one"):
        StateGraph(Log).add_node("a", logs("a"), input=Other, input_schema=Part)


def needs_more(state: Log, config: Any, threshold: float) -> None: ...


def test_a_parameter_that_nobody_gives_is_named_when_the_node_is_added() -> None:
    with pytest.raises(NodeSignatureError, match=r"Node 'needs_more' has the .*missing .* 'threshold'"):
        StateGraph(Log).add_node(needs_more)
    StateGraph(Log).add_node("a", functools.partial(needs_more, threshold=1.0))


def test_a_refused_handler_leaves_no_node() -> None:
    graph = StateGraph(Log)
    with pytest.raises(NodeSignatureError, match="Node '__error_handler__a' has the signature"):
        graph.add_node("a", logs("a"), error_handler=needs_more)

    assert not graph.nodes


# Sequences, entry and finish


async def test_a_sequence_runs_one_node_after_the_other() -> None:
    async def named(state: Log) -> Any:
        return {"log": ["named"]}

    graph = StateGraph(Log).add_sequence([("a", logs("a")), named, ("c", logs("c"))])
    assert graph.edges == {("a", "named"), ("named", "c")}

    compiled = graph.set_entry_point("a").set_finish_point("c").compile()
    assert graph.edges >= {(START, "a"), ("c", END)}
    assert (await compiled.ainvoke({}))["log"] == ["a", "named", "c"]


def test_an_empty_sequence_is_refused() -> None:
    with pytest.raises(GraphValidationError, match=r"Sequence requires at least one node\."):
        builder().add_sequence([])


@pytest.mark.parametrize("nodes", [[("a", len)], [("b", logs("b")), ("b", logs("b"))]])
def test_a_sequence_with_a_name_that_is_taken_is_refused_as_a_whole(nodes: Any) -> None:
    graph = builder("a")
    with pytest.raises(
        GraphValidationError, match=r"Node names must be unique: node with the name '[ab]' already exists"
    ):
        graph.add_sequence(nodes)

    assert list(graph.nodes) == ["a"]


async def test_a_conditional_entry_point_goes_where_its_path_says() -> None:
    graph = (
        builder("a", "b").set_conditional_entry_point(lambda state: state["x"], {1: "a", 2: "b"}).compile()
    )

    assert (await graph.ainvoke({"x": 2}))["log"] == ["b"]


# add_edge


@pytest.mark.parametrize(
    "starts", [{"c", "a", "b"}, frozenset("abc"), dict.fromkeys("cab").keys(), ["a", "b", "c"], iter("abc")]
)
async def test_a_join_starts_from_whatever_holds_names_and_of_sets_in_the_same_order_everywhere(
    starts: Any,
) -> None:
    graph = builder("a", "b", "c", "end").add_edge(starts, "end")
    for name in "abc":
        graph.add_edge(START, name)

    assert graph.waiting_edges == {(("a", "b", "c"), "end")}
    assert (await graph.compile().ainvoke({}))["log"] == ["a", "b", "c", "end"]


@pytest.mark.parametrize(("start", "wrong"), [(["a", 5], "5"), ({"a", None}, "None")])
def test_a_join_of_what_are_no_names_is_refused(start: Any, wrong: str) -> None:
    message = (
        f"^An edge starts at a node's name, or at a list of names, but the edge to 'b' starts at {wrong}"
    )
    with pytest.raises(GraphValidationError, match=message):
        builder("a", "b").add_edge(start, "b")
