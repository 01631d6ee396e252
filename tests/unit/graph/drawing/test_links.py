from __future__ import annotations

from itertools import pairwise, starmap

from hypothesis import given
from hypothesis import strategies as st

from perdure.graph.drawing import Edge
from perdure.graph.drawing.links import Link, links_of, parts_of


def link(upper: str, lower: str, *, up: bool = False, down: bool = True, conditional: bool = False) -> Link:
    return Link(upper, lower, down=down, up=up, conditional=conditional)


def test_an_edge_that_closes_a_cycle_is_turned_round() -> None:
    edges = [Edge("a", "b"), Edge("b", "c"), Edge("c", "a")]

    assert links_of("abc", edges) == [link("a", "b"), link("b", "c"), link("a", "c", up=True, down=False)]


def test_edges_there_and_back_are_one_link() -> None:
    assert links_of("ab", [Edge("a", "b"), Edge("b", "a")]) == [link("a", "b", up=True)]


def test_a_cycle_may_be_long() -> None:
    names = [f"n{number}" for number in range(5000)]

    links = links_of(names, [*starmap(Edge, pairwise(names)), Edge(names[-1], names[0])])

    assert [each for each in links if each.up] == [link(names[0], names[-1], up=True, down=False)]


def test_edges_to_the_same_node_are_left_out() -> None:
    assert links_of("a", [Edge("a", "a")]) == []


def test_a_link_is_conditional_if_all_its_edges_are() -> None:
    both = [Edge("a", "b", None, True), Edge("a", "b", "x", True)]

    assert links_of("ab", both) == [link("a", "b", conditional=True)]
    assert links_of("ab", [*both, Edge("a", "b")]) == [link("a", "b")]


def test_parts_are_in_the_order_of_their_first_nodes() -> None:
    links = [link("b", "d"), link("c", "a")]

    assert parts_of("abcde", links) == [
        (["a", "c"], [link("c", "a")]),
        (["b", "d"], [link("b", "d")]),
        (["e"], []),
    ]


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from("abcdef"))))
def test_links_hold_every_edge_and_close_no_cycle(pairs: list[tuple[str, str]]) -> None:
    links = links_of("abcdef", [Edge(*pair) for pair in pairs])

    held = {(each.upper, each.lower) for each in links if each.down}
    held |= {(each.lower, each.upper) for each in links if each.up}
    assert held == {pair for pair in pairs if pair[0] != pair[1]}
    left, rest = set("abcdef"), links
    while free := left - {each.lower for each in rest}:
        left -= free
        rest = [each for each in rest if each.upper in left]
    assert not left
    assert len({frozenset((each.upper, each.lower)) for each in links}) == len(links)
