from __future__ import annotations

from perdure.graph.drawing.elements import Edge, blocks, group_around, in_order
from tests.unit.graph.drawing.graphs import drawing


def test_edges_are_in_order_and_without_repetitions() -> None:
    ordered = [
        Edge("a", "b"),
        Edge("a", "b", "x"),
        Edge("a", "b", None, True),
        Edge("a", "b", "x", True),
        Edge("a", "c"),
        Edge("b", "a"),
    ]

    assert in_order([*reversed(ordered), *ordered]) == ordered


def test_an_edge_belongs_to_the_innermost_group_around_both_ends() -> None:
    assert group_around(Edge("a", "b")) == ()
    assert group_around(Edge("c:a", "c:b")) == ("c",)
    assert group_around(Edge("c:a", "c:d:b")) == ("c",)
    assert group_around(Edge("c:d:a", "c:d:b")) == ("c", "d")
    assert group_around(Edge("c:d:a", "e:d:b")) == ()
    assert group_around(Edge("c:a", "b")) == ()


def test_a_group_without_nodes_of_its_own_is_around_the_groups_in_it() -> None:
    outermost = blocks(drawing(["c:d:a"]).nodes.values(), [])

    assert [inner.group for inner in outermost.inner] == [("c",)]
    assert [inner.group for inner in outermost.inner[0].inner] == [("c", "d")]
