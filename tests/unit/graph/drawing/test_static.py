from __future__ import annotations

from dataclasses import replace
from typing import Any, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.constants import END, RESERVED_NODE_NAMES, START
from perdure.graph.drawing import Edge
from perdure.graph.drawing.safe_ids import safe_ids
from perdure.graph.state import CompiledStateGraph, StateGraph
from perdure.pregel.plan.plan import Calling, NodeSpec, Policies
from tests.unit.graph.drawing.graphs import builder, compiled, describe, read, work

# Random graphs have every structure that compile() warns of.
pytestmark = pytest.mark.filterwarnings("ignore::perdure.errors.GraphStructureWarning")


class Given(TypedDict):
    x: int


class Shown(TypedDict):
    x: int


def test_nodes_are_the_start_then_those_added_in_their_order_then_the_end() -> None:
    graph = compiled("ba", [(START, "b"), ("b", "a"), ("a", END)]).get_graph()

    assert list(graph.nodes) == [START, "b", "a", END]
    assert [(node.id, node.name) for node in graph.nodes.values()] == [(each, each) for each in graph.nodes]


def test_nodes_know_what_they_run_and_the_ends_know_their_schemas() -> None:
    child = compiled("a", [(START, "a")])
    schemas: Any = {"input_schema": Given, "output_schema": Shown}
    description = builder("a", [(START, "a"), ("a", "c")], subgraphs={"c": child}, **schemas)

    nodes = description.compile().get_graph().nodes

    assert [node.data for node in nodes.values()] == [Given, work, child, Shown]


def test_end_is_left_out_when_nothing_leads_there() -> None:
    graph = compiled("ab", [(START, "a"), ("a", "b"), ("b", "a")]).get_graph()

    assert END not in graph.nodes


def test_edges_are_sorted_by_source_and_target() -> None:
    graph = compiled("abc", [(START, "c"), ("c", "b"), ("c", "a"), ("b", END), ("a", END)]).get_graph()

    assert graph.edges == [
        Edge("__start__", "c"),
        Edge("a", "__end__"),
        Edge("b", "__end__"),
        Edge("c", "a"),
        Edge("c", "b"),
    ]


def test_a_node_at_which_nothing_starts_leads_to_the_end() -> None:
    assert Edge("a", END) in compiled("a", [(START, "a")]).get_graph().edges


def test_a_join_is_a_plain_edge_from_each_start() -> None:
    graph = compiled("abc", [(START, "a"), (START, "b")], joins=[("ab", "c")]).get_graph()

    assert [edge for edge in graph.edges if edge.target == "c"] == [Edge("a", "c"), Edge("b", "c")]
    assert Edge("a", END) not in graph.edges


def test_a_branch_leads_where_its_map_says_labelled_by_what_the_path_returns() -> None:
    ends = {"again": "a", "b": "b", True: END}
    graph = compiled("ab", [(START, "a")], branches=[("a", ends)]).get_graph()

    assert [edge for edge in graph.edges if edge.source == "a"] == [
        Edge("a", "__end__", "True", conditional=True),
        Edge("a", "a", "again", conditional=True),
        Edge("a", "b", None, conditional=True),
    ]


def test_a_branch_without_a_map_leads_everywhere_but_to_the_start() -> None:
    graph = compiled("ab", [(START, "a")], branches=[("a", None)]).get_graph()

    assert [edge for edge in graph.edges if edge.source == "a"] == [
        Edge("a", target, None, conditional=True) for target in ("__end__", "a", "b")
    ]


def test_a_branch_whose_map_is_empty_leads_nowhere() -> None:
    graph = compiled("ab", [(START, "a"), (START, "b")], branches=[("a", {})]).get_graph()

    assert [edge for edge in graph.edges if edge.source == "a"] == [Edge("a", END)]


def test_a_branch_at_the_start_is_drawn() -> None:
    graph = compiled("ab", [], branches=[(START, {"left": "a", "right": "b"})]).get_graph()

    assert graph.edges[:2] == [Edge(START, "a", "left", True), Edge(START, "b", "right", True)]


def test_an_edge_that_two_branches_share_is_drawn_once_for_each_label() -> None:
    branches = [("a", {"x": "b"}), ("a", {"y": "b"}), ("a", ["b"]), ("a", ["b"])]
    graph = compiled("ab", [(START, "a"), ("a", "b")], branches=branches).get_graph()

    assert [edge[2:] for edge in graph.edges if edge.target == "b"] == [
        (None, False),
        (None, True),
        ("x", True),
        ("y", True),
    ]


def test_declared_destinations_are_conditional_edges_with_their_labels() -> None:
    description = builder("abc", [(START, "a")])
    describe(description, "a", destinations={"b": "it is late", "c": None, END: END})

    edges = description.compile().get_graph().edges

    assert [edge for edge in edges if edge.source == "a"] == [
        Edge("a", "__end__", None, conditional=True),
        Edge("a", "b", "it is late", conditional=True),
        Edge("a", "c", None, conditional=True),
    ]


def test_metadata_is_the_users_and_says_what_is_deferred() -> None:
    description = builder("abc", [(START, "a"), (START, "b"), (START, "c")])
    describe(description, "a", metadata={"team": "search"})
    describe(description, "b", metadata={"team": "index"}, defer=True)

    nodes = description.compile().get_graph().nodes

    assert nodes["a"].metadata == {"team": "search"}
    assert nodes["b"].metadata == {"team": "index", "defer": True}
    assert nodes["c"].metadata == {}


def test_nodes_at_which_a_run_pauses_say_when() -> None:
    graph = compiled("abc", [(START, "a"), (START, "b"), (START, "c")])
    graph.interrupt_before_nodes = ["a", "b"]
    graph.interrupt_after_nodes = ["b", "c"]

    nodes = graph.get_graph().nodes

    assert [nodes[name].metadata for name in "abc"] == [
        {"__interrupt": "before"},
        {"__interrupt": "before,after"},
        {"__interrupt": "after"},
    ]


def test_a_pause_at_all_nodes_is_a_pause_at_each_but_not_at_the_ends() -> None:
    graph = compiled("ab", [(START, "a"), ("a", "b")])
    graph.interrupt_before_nodes = "*"

    nodes = graph.get_graph().nodes

    assert [node.metadata.get("__interrupt") for node in nodes.values()] == [None, "before", "before", None]


def with_handler(graph: CompiledStateGraph, node: str, handler: str) -> CompiledStateGraph:
    """Add a hidden error handler to a graph."""
    spec = NodeSpec(
        name=handler, action=work, calling=Calling.COROUTINE, triggers=(), metadata={"hidden": True}
    )
    guarded = replace(graph.plan.nodes[node], policies=Policies(handler=handler))
    graph.plan = replace(graph.plan, nodes={**graph.plan.nodes, node: guarded, handler: spec})
    return graph


def test_an_error_handler_is_a_node_to_which_the_node_it_serves_leads() -> None:
    graph = with_handler(compiled("ab", [(START, "a"), ("a", "b")]), "a", "rescue").get_graph()

    assert list(graph.nodes) == [START, "a", "b", "rescue", END]
    assert graph.nodes["rescue"].metadata == {"hidden": True}
    assert graph.nodes["rescue"].data is work
    assert Edge("a", "rescue", "error", conditional=True) in graph.edges
    assert Edge("rescue", END) in graph.edges


def test_a_node_with_an_error_handler_and_no_edges_leads_to_the_end_too() -> None:
    graph = with_handler(compiled("a", [(START, "a")]), "a", "rescue").get_graph()

    assert Edge("a", END) in graph.edges


def test_a_branch_without_a_map_does_not_lead_to_error_handlers() -> None:
    graph = with_handler(compiled("ab", [(START, "a")], branches=[("a", None)]), "b", "rescue").get_graph()

    assert [edge.source for edge in graph.edges if edge.target == "rescue"] == ["b"]


def test_what_is_added_after_compile_is_not_drawn() -> None:
    description = builder("ab", [(START, "a")], branches=[("a", ["b"])])
    graph = description.compile()
    before = graph.get_graph()

    description.add_node("late", work).add_edge("a", "late").add_edge(["a", "b"], "late")
    description.add_conditional_edges("a", lambda state: "late", ["late"])

    assert graph.get_graph() == before


# Any graph

NAMES = st.one_of(
    st.sampled_from(["a", "b", "end", "a b", "a-b", "a\\2d", "x", "X", "_self", "1"]),
    st.text(st.characters(exclude_characters="|:", exclude_categories=["Cs"]), min_size=1, max_size=6),
).filter(lambda name: name not in RESERVED_NODE_NAMES)


@st.composite
def descriptions(draw: st.DrawFn) -> StateGraph:
    names = draw(st.lists(NAMES, min_size=1, max_size=6, unique=True))
    node, target = st.sampled_from(names), st.sampled_from([*names, END])
    pairs = draw(st.lists(st.tuples(node, target), max_size=8))
    joins = draw(st.lists(st.tuples(st.lists(node, min_size=1, max_size=3, unique=True), target), max_size=2))
    ends = st.one_of(st.none(), st.dictionaries(st.text("lkj .-", max_size=4), target, max_size=3))
    branches = draw(st.lists(st.tuples(st.sampled_from([START, *names]), ends), max_size=3))
    graph = builder(names, [(START, draw(node)), *pairs], joins=joins, branches=branches)
    for name in draw(st.lists(node, max_size=2, unique=True)):
        labels = st.one_of(st.none(), st.text("lkj .-", max_size=4))
        describe(graph, name, destinations=draw(st.dictionaries(target, labels, max_size=3)))
    return graph


def expected_edges(graph: StateGraph) -> set[Edge]:
    """Return the edges that a drawing of a description must show."""
    flow = {Edge(start, end) for start, end in graph.edges}
    flow |= {Edge(start, end) for starts, end in graph.waiting_edges for start in starts}
    for source, branches in graph.branches.items():
        for branch in branches.values():
            ends = {end: end for end in [*graph.nodes, END]} if branch.ends is None else branch.ends
            flow |= {Edge(source, end, None if key == end else str(key), True) for key, end in ends.items()}
    for source, node in graph.nodes.items():
        for end, label in (node.destinations or {}).items():
            flow.add(Edge(source, end, None if label == end else label, True))
    return flow | {Edge(name, END) for name in graph.nodes if name not in {edge.source for edge in flow}}


@given(descriptions())
def test_every_edge_of_any_description_is_drawn_exactly_once(description: StateGraph) -> None:
    graph = description.compile().get_graph()

    assert len(graph.edges) == len(set(graph.edges))
    assert set(graph.edges) == expected_edges(description)
    assert {end for edge in graph.edges for end in edge[:2]} <= graph.nodes.keys()


@given(descriptions())
def test_mermaid_text_of_any_description_says_every_node_and_edge_once(description: StateGraph) -> None:
    graph = description.compile().get_graph()

    said = read(graph.draw_mermaid())

    ids = safe_ids(graph.nodes)
    assert len(set(ids.values())) == len(ids)
    assert said.labels.keys() == set(ids.values())
    assert {name: said.labels[ids[name]] for name in ids} == {name: name.strip(" ") for name in ids}
    assert said.edges.total() == len(graph.edges)
    assert {(edge.source, edge.target, edge.conditional) for edge in said.edges} == {
        (ids[edge.source], ids[edge.target], edge.conditional) for edge in graph.edges
    }


@given(descriptions())
def test_any_description_can_be_drawn_in_every_way(description: StateGraph) -> None:
    graph = description.compile().get_graph()

    boxes = graph.draw_ascii()

    assert boxes.count("+-") == 2 * len(graph.nodes)
    assert boxes.count("-+") == 2 * len(graph.nodes)
    assert graph.draw_dot().count(" -> ") >= len(graph.edges)
    assert len(graph.to_json()["edges"]) == len(graph.edges)
