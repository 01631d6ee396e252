"""The warnings of compile(), and the structures that cause none."""

from __future__ import annotations

import asyncio
import cProfile
import operator
import pstats
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Annotated, Any, Literal, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.constants import END, START
from perdure.graph.checks.structure import structure_warnings
from perdure.graph.description import StateNode
from perdure.graph.state import StateGraph
from perdure.pregel.plan.plan import Calling


class State(TypedDict, total=False):
    log: Annotated[list[str], operator.add]


def graph(*edges: tuple[Any, str], deferred: Iterable[str] = (), also: Iterable[str] = ()) -> StateGraph:
    """Build a graph from edges; its nodes are those that the edges name."""
    builder = StateGraph(State)
    named = [name for start, end in edges for name in (*([start] if isinstance(start, str) else start), end)]
    for name in dict.fromkeys([*named, *also]):
        if name not in (START, END):
            builder.nodes[name] = node(name, defer=name in deferred)
    for start, end in edges:
        builder.add_edge(start, end)
    return builder


def node(name: str, **more: Any) -> StateNode:
    async def action(state: State) -> State:
        return {"log": [name]}

    return StateNode(action=action, calling=Calling.COROUTINE, **more)


def warned(builder: StateGraph) -> list[str]:
    builder.validate()
    return structure_warnings(builder)


def path(state: Any) -> str:
    return END


def path_of_several(state: Any) -> list[str]:
    return ["a", "b"]


def path_of_sends(state: Any) -> list[Any]:
    return []


# A node that runs twice

TWICE: dict[str, tuple[Callable[[], StateGraph], list[str]]] = {
    "ways of one and of two edges": (
        lambda: graph((START, "a"), (START, "b"), ("b", "b2"), ("a", "n"), ("b2", "n")),
        [
            "Node 'n' runs 2 times where it looks like once: counted from START, it is reached from 'a' in "
            "superstep 2, 'b2' in superstep 3. To run it once, after the last of them, write "
            "add_edge(['a', 'b2'], 'n') in place of these edges, or add it with defer=True."
        ],
    ),
    "an ancestor that is not the start": (
        lambda: graph((START, "s"), ("s", "a"), ("s", "b"), ("b", "b2"), ("a", "n"), ("b2", "n")),
        ["Node 'n' runs 2 times where it looks like once: counted from START, it is reached from 'a' in"],
    ),
    "an edge that jumps ahead": (
        lambda: graph((START, "a"), ("a", "b"), ("a", "n"), ("b", "n")),
        ["Node 'n' runs 2 times"],
    ),
    "an edge from the start": (
        lambda: graph((START, "a"), ("a", "n"), (START, "n")),
        [
            "Node 'n' runs 2 times where it looks like once: counted from START, it is reached from START in "
            "superstep 1, 'a' in superstep 2. To run it once, after the last of them, keep only the edge "
            "from 'a'."
        ],
    ),
    "three lengths": (
        lambda: graph((START, "a"), ("a", "b"), ("b", "c"), ("a", "n"), ("b", "n"), ("c", "n")),
        ["Node 'n' runs 3 times"],
    ),
    "a join among the ways": (
        lambda: graph((START, "a"), (START, "b"), (["a", "b"], "j"), ("j", "n"), ("a", "n")),
        ["Node 'n' runs 2 times where it looks like once: counted from START, it is reached from 'a' in"],
    ),
    "a join as one of the ways": (
        lambda: graph((START, "a"), ("a", "a2"), ("a", "b"), (["a2", "b"], "n"), ("a", "n")),
        ["it is reached from 'a' in superstep 2, the join of ['a2', 'b'] in superstep 3."],
    ),
    "only the first of those that run twice": (
        lambda: graph((START, "a"), ("a", "b"), ("a", "n"), ("b", "n"), ("n", "m"), ("m", "l"), ("n", "k")),
        ["Node 'n' runs 2 times"],
    ),
    "two faults, each once": (
        lambda: graph(
            *((START, "a"), ("a", "b"), ("a", "n"), ("b", "n")),
            *(("n", "c"), ("c", "d"), ("n", "m"), ("d", "m")),
        ),
        ["Node 'm' runs 2 times", "Node 'n' runs 2 times"],
    ),
    "behind a conditional edge": (
        lambda: graph(
            ("s", "a"), ("s", "b"), ("b", "b2"), ("a", "n"), ("b2", "n"), (START, "r")
        ).add_conditional_edges("r", path, ["s", END]),
        ["Node 'n' runs 2 times where it looks like once: counted from 's', it is reached from"],
    ),
    "inside a loop": (
        lambda: graph(
            *((START, "agent"), ("tool", "look"), ("tool", "agent"), ("look", "agent"))
        ).add_conditional_edges("agent", path, ["tool", END]),
        ["Node 'agent' runs 2 times where it looks like once: counted from 'tool'"],
    ),
}


@pytest.mark.parametrize(("build", "texts"), TWICE.values(), ids=TWICE)
def test_a_node_whose_ways_differ_in_length_is_warned_of(
    build: Callable[[], StateGraph], texts: list[str]
) -> None:
    found = warned(build())

    assert len(found) == len(texts)
    for text, warning in zip(texts, found, strict=True):
        assert text in warning


async def test_what_is_warned_of_happens_and_the_remedies_help() -> None:
    edges = [(START, "a"), (START, "b"), ("b", "b2")]
    with pytest.warns(match="Node 'n' runs 2 times"):
        twice = graph(*edges, ("a", "n"), ("b2", "n")).compile()
    once = graph(*edges, (["a", "b2"], "n")).compile()

    assert (await twice.ainvoke({}))["log"].count("n") == 2
    assert (await once.ainvoke({}))["log"].count("n") == 1


ONCE: dict[str, Callable[[], StateGraph]] = {
    "a chain": lambda: graph((START, "a"), ("a", "b"), ("b", END)),
    "a diamond": lambda: graph((START, "a"), ("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")),
    "ways to the end": lambda: graph((START, "a"), ("a", "b"), ("a", END), ("b", END)),
    "a deferred node": lambda: graph((START, "a"), ("a", "b"), ("a", "n"), ("b", "n"), deferred=["n"]),
    "after a deferred node": lambda: graph(
        (START, "a"), ("a", "b"), ("a", "n"), ("b", "n"), ("n", "m"), deferred=["n"]
    ),
    "an agent's loop": lambda: graph((START, "agent"), ("tools", "agent")).add_conditional_edges(
        "agent", path, ["tools", END]
    ),
    "an agent's loop, undeclared": lambda: graph((START, "agent"), ("tools", "agent")).add_conditional_edges(
        "agent", path
    ),
    "a longer loop": lambda: graph(
        (START, "write"), ("write", "judge"), ("mend", "check"), ("check", "write")
    ).add_conditional_edges("judge", path, ["mend", END]),
    "a loop of plain edges": lambda: graph((START, "a"), ("a", "b"), ("b", "c"), ("c", "a")),
    "a node that loops": lambda: graph((START, "a"), ("a", "a")),
    "alternatives of different length": lambda: graph(
        (START, "s"), ("a", "n"), ("b", "b2"), ("b2", "n")
    ).add_conditional_edges("s", path, ["a", "b"]),
    "an alternative that goes there at once": lambda: graph((START, "s"), ("a", "n")).add_conditional_edges(
        "s", path, ["a", "n"]
    ),
    "a join in place of edges": lambda: graph((START, "a"), ("a", "b"), (["a", "b"], "n")),
    "nodes that nothing leads to": lambda: graph((START, "a"), ("x", "n"), ("y", "y2"), ("y2", "n")),
}


@pytest.mark.parametrize("build", ONCE.values(), ids=ONCE)
def test_what_runs_once_or_is_meant_to_loop_is_not_warned_of(build: Callable[[], StateGraph]) -> None:
    assert warned(build()) == []


# A join that may never fire


def exclusive() -> StateGraph:
    return graph((START, "s"), (["a", "b"], "j")).add_conditional_edges("s", path, ["a", "b"])


def declares(state: Any) -> Literal["a", "b"]:
    return "a"


NEVER: dict[str, tuple[Callable[[], StateGraph], str]] = {
    "alternatives": (exclusive, "'a' runs only if conditional edge 'path' of 's' goes that way"),
    "declared by a Literal": (
        lambda: graph((START, "s"), (["a", "b"], "j")).add_conditional_edges("s", declares),
        "'a' runs only if conditional edge 'declares' of 's' goes",
    ),
    "from the start": (
        lambda: graph((["a", "b"], "j")).add_conditional_edges(START, path, ["a", "b"]),
        "'a' runs only if conditional edge 'path' of START goes",
    ),
    "one certain, one chosen": (
        lambda: graph((START, "a"), (START, "s"), (["a", "b"], "j")).add_conditional_edges(
            "s", path, ["b", END]
        ),
        "The join of ['a', 'b'] may never let 'j' run: 'b' runs only if conditional edge 'path' of 's' goes",
    ),
    "further down": (
        lambda: graph(
            *((START, "a"), (START, "s"), ("x", "y"), ("y", "b"), (["a", "b"], "j"))
        ).add_conditional_edges("s", path, ["x", END]),
        "'b' runs only if conditional edge 'path' of 's' goes",
    ),
    "a path that declares nothing": (
        lambda: graph((START, "s"), (START, "a"), (["a", "b"], "j")).add_conditional_edges("s", path),
        "'b' runs only if conditional edge 'path' of 's' goes",
    ),
    "a deferred join": (
        lambda: graph((START, "s"), (["a", "b"], "j"), deferred=["j"]).add_conditional_edges(
            "s", path, ["a", "b"]
        ),
        "'a' runs only if",
    ),
}


@pytest.mark.parametrize(("build", "text"), NEVER.values(), ids=NEVER)
def test_a_join_one_start_of_which_may_be_skipped_is_warned_of(
    build: Callable[[], StateGraph], text: str
) -> None:
    [warning] = warned(build())

    assert text in warning
    assert warning.endswith("or, if the path always chooses them all, annotate that it returns a list.")


async def test_a_join_that_is_warned_of_may_indeed_never_fire() -> None:
    with pytest.warns(match="may never let 'j' run"):
        compiled = graph((START, "s"), (["a", "b"], "j")).add_conditional_edges("s", declares).compile()

    assert (await compiled.ainvoke({}))["log"] == ["s", "a"]


FIRES: dict[str, Callable[[], StateGraph]] = {
    "starts that all run": lambda: graph((START, "a"), (START, "b"), (["a", "b"], "j")),
    "starts at different times": lambda: graph((START, "a"), ("a", "b"), ("b", "c"), (["a", "c"], "j")),
    "one start": lambda: graph((START, "s"), (["a"], "j")).add_conditional_edges("s", path, ["a", END]),
    "both behind one conditional edge": lambda: graph(
        (START, "s"), ("x", "a"), ("x", "b"), (["a", "b"], "j")
    ).add_conditional_edges("s", path, ["x", END]),
    "alternatives that meet again": lambda: graph(
        (START, "a"), (START, "s"), ("x", "b"), ("y", "y2"), ("y2", "b"), (["a", "b"], "j")
    ).add_conditional_edges("s", path, ["x", "y"]),
    "a path of one destination": lambda: graph(
        (START, "a"), (START, "s"), (["a", "b"], "j")
    ).add_conditional_edges("s", path, ["b"]),
    "a path annotated to choose several": lambda: graph(
        (START, "s"), (["a", "b"], "j")
    ).add_conditional_edges("s", path_of_several, ["a", "b"]),
    "a path that sends": lambda: graph((START, "s"), (["a", "b"], "j")).add_conditional_edges(
        "s", path_of_sends
    ),
    "a loop that is left only this way": lambda: graph(
        (START, "a"), (START, "agent"), ("tools", "agent"), (["a", "report"], "j")
    ).add_conditional_edges("agent", path, ["tools", "report"]),
    "two loops in one another": lambda: (
        graph((START, "a"), (START, "agent"), (["a", "report"], "j"), also=["critic"])
        .add_conditional_edges("agent", path, ["critic", "report"])
        .add_conditional_edges("critic", path, ["agent", "report"])
    ),
    "a node that chooses itself until it is done": lambda: graph(
        (START, "a"), (["a", "b"], "j")
    ).add_conditional_edges("a", path, ["a", "b"]),
    "starts that nothing leads to": lambda: graph((START, "s"), (["a", "b"], "j")),
    "joins of joins": lambda: graph(
        (START, "s"), ("x", "a"), ("x", "b"), ("x", "c"), (["a", "b"], "j"), (["j", "c"], "k")
    ).add_conditional_edges("s", path, ["x", END]),
    "a join to the end": lambda: graph((START, "s"), (["a", "b"], END)).add_conditional_edges(
        "s", path, ["a", "b"]
    ),
}


@pytest.mark.parametrize("build", FIRES.values(), ids=FIRES)
def test_a_join_that_fires_whenever_it_begins_to_wait_is_not_warned_of(
    build: Callable[[], StateGraph],
) -> None:
    assert warned(build()) == []


def test_a_start_that_a_node_declares_as_its_destination_is_not_taken_for_skipped() -> None:
    builder = graph((START, "s"), (START, "a"), (["a", "b"], "j")).add_conditional_edges("s", path)
    builder.nodes["a"] = node("a", destinations={"b": None})

    assert warned(builder) == []


# Whatever the graph


@st.composite
def acyclic(draw: st.DrawFn) -> list[tuple[Any, str]]:
    """Plain edges and joins between a few nodes, all of them forwards; every node is reached from START."""
    count = draw(st.integers(2, 7))
    names = [START, *(f"n{number}" for number in range(count))]
    edges: list[tuple[Any, str]] = [(START, "n0")]
    for place in range(1, count + 1):
        before = st.sampled_from(names[:place])
        edges += [(start, names[place]) for start in draw(st.sets(before, min_size=1, max_size=3))]
        if place > 2 and draw(st.booleans()):
            starts = draw(st.lists(st.sampled_from(names[1:place]), min_size=2, max_size=3, unique=True))
            edges.append((starts, names[place]))
    return edges


@given(acyclic())
async def test_without_choices_and_loops_a_graph_is_warned_of_if_and_only_if_a_node_runs_twice(
    edges: list[tuple[Any, str]],
) -> None:
    builder = graph(*edges)
    found = warned(builder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = builder.compile()
    times = Counter((await compiled.ainvoke({})).get("log", ()))
    named = {text.split("'")[1] for text in found}

    assert {name for name in named if times[name] < 2} == set()
    assert bool(named) == any(count > 1 for count in times.values())


# What it costs


@pytest.fixture
def loop_guard() -> None:
    """Replace the guard of the loop, whose calls would be counted."""


def calls(builder: StateGraph) -> int:
    profile = cProfile.Profile()
    profile.runcall(structure_warnings, builder)
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


def chained(length: int) -> StateGraph:
    names = [START, *(f"n{i:04}" for i in range(length))]
    return graph(*pairwise(names))


def knotted(length: int) -> StateGraph:
    """Build diamonds one after the other, with a join in each."""
    edges: list[tuple[Any, str]] = [(START, "n0")]
    for i in range(length):
        edges += [(f"n{i}", f"l{i}"), (f"n{i}", f"r{i}"), ([f"l{i}", f"r{i}"], f"n{i + 1}")]
    return graph(*edges)


def alternatives(width: int) -> StateGraph:
    """Build a path to many nodes, which all lead to one, and a chain after it."""
    names = [f"w{i:04}" for i in range(width)]
    builder = graph(
        (START, "s"), *((name, "n0") for name in names), *((f"n{i}", f"n{i + 1}") for i in range(width))
    )
    return builder.add_conditional_edges("s", path, names)


@pytest.mark.usefixtures("loop_guard")
@pytest.mark.parametrize("build", [chained, knotted, alternatives])
def test_the_cost_grows_with_the_graph_and_not_faster(build: Callable[[int], StateGraph]) -> None:
    small, large = calls(build(100)), calls(build(1000))

    assert large <= 12 * small


@pytest.mark.usefixtures("loop_guard")
def test_in_a_chain_of_1000_there_is_nothing_to_follow() -> None:
    followed = chained(1000)
    followed.add_edge("n0000", "n0999")

    assert calls(chained(1000)) <= calls(followed) / 2


def test_the_order_of_description_does_not_matter() -> None:
    edges = [(START, "a"), (START, "b"), ("b", "b2"), ("a", "n"), ("b2", "n"), ("n", "m"), ("a", "m")]

    assert warned(graph(*edges)) == warned(graph(*reversed(edges)))


def test_a_long_way_is_followed_without_recursion() -> None:
    edges = chained(5000)
    edges.add_edge("n0000", "n4999")

    assert "'n4999' runs 2 times" in warned(edges)[0]


def test_running_what_is_described_here_needs_no_warning() -> None:
    assert asyncio.run(graph((START, "a")).compile().ainvoke({})) == {"log": ["a"]}
