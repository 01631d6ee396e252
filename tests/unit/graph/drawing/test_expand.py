from __future__ import annotations

from perdure.constants import END, START
from perdure.graph.drawing import Edge
from perdure.graph.drawing.expand import expand
from tests.unit.graph.drawing.graphs import compiled

CHAIN = [(START, "a"), ("a", "b"), ("b", END)]


def outer(child: object) -> list[Edge]:
    graph = compiled("py", [(START, "p"), ("p", "c"), ("c", "y")], subgraphs={"c": child})
    return graph.get_graph(xray=True).edges


def test_a_subgraph_takes_the_place_of_its_node() -> None:
    graph = compiled("py", [(START, "p"), ("p", "c"), ("c", "y")], subgraphs={"c": compiled("ab", CHAIN)})

    drawn = graph.get_graph(xray=True)

    assert list(drawn.nodes) == [START, "p", "y", "c:a", "c:b", END]
    assert [node.id for node in drawn.nodes.values()] == list(drawn.nodes)
    assert [node.name for node in drawn.nodes.values()] == [START, "p", "y", "a", "b", END]
    assert drawn.edges == [
        Edge(START, "p"),
        Edge("c:a", "c:b"),
        Edge("c:b", "y"),
        Edge("p", "c:a"),
        Edge("y", END),
    ]


def test_without_xray_a_subgraph_is_a_node() -> None:
    graph = compiled("p", [(START, "p"), ("p", "c")], subgraphs={"c": compiled("ab", CHAIN)})

    assert list(graph.get_graph().nodes) == [START, "p", "c", END]


def test_labels_and_conditions_of_edges_around_and_inside_a_subgraph_are_kept() -> None:
    child = compiled("ab", [(START, "a"), ("b", END)], branches=[("a", {"x": "b"})])
    graph = compiled("p", [(START, "p"), ("c", END)], branches=[("p", {"y": "c"})], subgraphs={"c": child})

    assert graph.get_graph(xray=True).edges == [
        Edge(START, "p"),
        Edge("c:a", "c:b", "x", True),
        Edge("c:b", END),
        Edge("p", "c:a", "y", True),
    ]


def test_an_edge_from_a_subgraph_to_itself_leads_from_its_last_node_to_its_first() -> None:
    graph = compiled("p", [(START, "c"), ("c", "c"), ("c", "p")], subgraphs={"c": compiled("ab", CHAIN)})

    assert Edge("c:b", "c:a") in graph.get_graph(xray=True).edges


def test_the_start_of_a_subgraph_stays_where_its_first_node_is_entered_from_within_too() -> None:
    loop = compiled("ab", [(START, "a"), ("b", "a")], branches=[("a", ["b", END])])

    assert outer(loop)[1:] == [
        Edge("c:__end__", "y"),
        Edge("c:__start__", "c:a"),
        Edge("c:a", "c:__end__", None, True),
        Edge("c:a", "c:b", None, True),
        Edge("c:b", "c:a"),
        Edge("p", "c:__start__"),
        Edge("y", END),
    ]


def test_the_start_and_the_end_of_a_subgraph_stay_where_it_has_several_first_and_last_nodes() -> None:
    wide = compiled("ab", [(START, "a"), (START, "b")])

    edges = outer(wide)

    assert Edge("p", "c:__start__") in edges
    assert Edge("c:__end__", "y") in edges


def test_a_subgraph_of_one_node_stays_the_node_that_it_is() -> None:
    assert outer(compiled("a", [(START, "a")])) == outer(None)


def test_a_subgraph_that_never_ends_stays_the_node_that_it_is() -> None:
    assert outer(compiled("ab", [(START, "a"), ("a", "b"), ("b", "a")])) == outer(None)


def test_a_subgraph_with_a_node_that_no_edge_leads_to_stays_the_node_that_it_is() -> None:
    assert outer(compiled("abc", CHAIN)) == outer(None)


def test_expanding_changes_neither_graph() -> None:
    child = compiled("ab", CHAIN).get_graph()
    graph = compiled("c", [(START, "c")]).get_graph()
    before = (dict(graph.nodes), list(graph.edges), dict(child.nodes), list(child.edges))

    expand(graph, "c", child)

    assert (graph.nodes, graph.edges, child.nodes, child.edges) == before
