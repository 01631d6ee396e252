"""The refusals of compile(). For those of describing a graph see test_state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypedDict

import pytest

from perdure.cache.memory import InMemoryCache
from perdure.checkpoint.memory import InMemorySaver
from perdure.constants import END, START
from perdure.errors import (
    GraphStructureWarning,
    GraphValidationError,
    InvalidUpdateError,
    InvalidUpdateWarning,
)
from perdure.graph.state import StateGraph
from perdure.pregel.graph import Pregel


class State(TypedDict, total=False):
    count: int


async def node(state: State) -> State:
    return {}


def builder(*names: str) -> StateGraph:
    graph = StateGraph(State)
    for name in names:
        graph.add_node(name, node)
    return graph.add_edge(START, names[0])


# Where to interrupt

SAYS = ("interrupt_before", "interrupt_after")


def interrupting(says: str, names: Any) -> Pregel:
    given: dict[str, Any] = {says: names}
    return builder("a", "b").compile(**given)


@pytest.mark.parametrize("says", SAYS)
@pytest.mark.parametrize(
    ("names", "kept"), [(None, ()), ([], ()), (["b", "a"], ("b", "a")), ("*", "*"), (("a",), ("a",))]
)
def test_the_nodes_to_interrupt_at_are_kept_on_the_compiled_graph(says: Any, names: Any, kept: Any) -> None:
    graph = interrupting(says, names)
    other = next(each for each in SAYS if each != says)

    assert getattr(graph, f"{says}_nodes") == kept
    assert getattr(graph, f"{other}_nodes") == ()


@pytest.mark.parametrize("says", SAYS)
@pytest.mark.parametrize("name", ["ghost", START, END])
def test_an_interrupt_at_an_unknown_node_is_refused(says: Any, name: str) -> None:
    with pytest.raises(GraphValidationError, match=f"^Interrupt node `{name}` not found$"):
        interrupting(says, ["a", name])


@pytest.mark.parametrize("says", SAYS)
def test_a_single_name_is_no_list_of_nodes_to_interrupt_at(says: Any) -> None:
    with pytest.raises(GraphValidationError, match=rf"{says} is a list of .* got 'a'\. Write \['a'\]"):
        interrupting(says, "a")


def test_validate_looks_at_the_nodes_to_interrupt_at_too() -> None:
    graph = builder("a")

    assert graph.validate(interrupt=["a"]) is graph
    with pytest.raises(GraphValidationError, match="Interrupt node `b` not found"):
        graph.validate(interrupt=["b"])


# What else compile is given


def test_store_cache_and_name_reach_the_compiled_graph() -> None:
    store, cache = object(), InMemoryCache()
    graph = builder("a").compile(store=store, cache=cache, name="mine")

    assert (graph.store, graph.cache, graph.name) == (store, cache, "mine")
    assert builder("a").compile().name == "LangGraph"


@pytest.mark.parametrize("checkpointer", [None, False, InMemorySaver()])
def test_a_saver_or_none_or_false_is_a_checkpointer(checkpointer: Any) -> None:
    assert builder("a").compile(checkpointer).checkpointer is checkpointer


def test_what_opens_a_saver_in_a_plain_with_is_not_taken_for_one() -> None:
    @contextmanager
    def opens() -> Iterator[None]:
        yield

    with pytest.raises(TypeError, match=r"a context manager that opens one\. Write `async with"):
        builder("a").compile(opens())  # type: ignore[arg-type]


# Strictness


def misspelling() -> StateGraph:
    async def misspells(state: State) -> Any:
        return {"cuont": 1}

    return StateGraph(State).add_node("a", misspells).add_edge(START, "a")


async def test_a_misspelt_key_is_an_error_where_strict_and_else_a_warning() -> None:
    with pytest.raises(InvalidUpdateError, match=r"^Node 'a' wrote to 'cuont', .*Did you mean 'count'\?"):
        await misspelling().compile(strict=True).ainvoke({"count": 0})
    with pytest.warns(InvalidUpdateWarning, match=r"Node 'a' wrote to 'cuont'"):
        assert await misspelling().compile(name="lenient").ainvoke({"count": 0}) == {"count": 0}


async def test_a_misspelt_input_is_an_error_where_strict() -> None:
    with pytest.raises(InvalidUpdateError, match=r"^The input wrote to 'cuont'"):
        await builder("a").compile(strict=True).ainvoke({"cuont": 0})


def test_a_structure_that_is_warned_of_is_an_error_where_strict() -> None:
    def graph() -> StateGraph:
        return builder("a", "b").add_edge("a", "b").add_edge(START, "b")

    with pytest.raises(GraphValidationError, match="Node 'b' runs 2 times"):
        graph().compile(strict=True)
    with pytest.warns(GraphStructureWarning, match="Node 'b' runs 2 times") as caught:
        assert isinstance(graph().compile(), Pregel)
    assert [warning.filename for warning in caught] == [__file__], "it points at the call"


# Old names

REFUSED: dict[str, tuple[Callable[[], dict[str, str]], str]] = {
    "an unknown new name": (
        lambda: {"old": "ghost"},
        r"says that node 'old' is 'ghost' now, which is not a node\. Known: a, b\.",
    ),
    "an old name that is a node": (
        lambda: {"a": "b"},
        "but the graph has a node 'a': a stored thread could mean",
    ),
    "a name that stays": (lambda: {"a": "a"}, "but the graph has a node 'a'"),
    "a chain": (lambda: {"first": "second", "second": "b"}, "'first' is 'second' now, which is not a node"),
    "two that become one": (
        lambda: {"one": "b", "two": "b"},
        "says of both 'one' and 'two' that they are 'b' now",
    ),
    "START": (lambda: {START: "a"}, "names '__start__', which no node can have had"),
    "to END": (lambda: {"old": END}, "'__end__' now, which is not a node"),
}


@pytest.mark.parametrize(("renamed", "message"), REFUSED.values(), ids=REFUSED)
def test_a_renaming_that_leaves_open_who_goes_on_is_refused(
    renamed: Callable[[], dict[str, str]], message: str
) -> None:
    with pytest.raises(GraphValidationError, match=message):
        builder("a", "b").compile(renamed=renamed())


def test_a_renaming_is_kept_in_the_plan_and_later_changes_of_the_mapping_are_not() -> None:
    renamed = {"old": "a"}
    graph = builder("a", "b").compile(renamed=renamed)
    renamed["older"] = "b"

    assert graph.plan.renamed == {"old": "a"}
