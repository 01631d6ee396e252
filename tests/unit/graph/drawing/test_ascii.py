from __future__ import annotations

import sys
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.constants import START
from perdure.errors import MissingExtraError
from perdure.graph.drawing import Edge
from tests.unit.graph.drawing.graphs import compiled, drawing


def drawn(text: str) -> str:
    """Return the drawing in a test without its indentation."""
    return dedent(text).strip("\n")


def test_boxes_stand_below_each_other_and_arrows_lead_down() -> None:
    assert drawing("ab", [Edge("a", "b")]).draw_ascii() == drawn(
        """
        +---+
        | a |
        +---+
          *
          *
          *
          v
        +---+
        | b |
        +---+
        """
    )


def test_a_conditional_edge_is_dotted_and_one_that_leads_back_has_its_arrow_above() -> None:
    assert drawing("ab", [Edge("a", "b", "x", True), Edge("b", "a", None, True)]).draw_ascii() == drawn(
        """
        +---+
        | a |
        +---+
          ^
          .
          .
          v
        +---+
        | b |
        +---+
        """
    )


def test_an_edge_passes_beside_the_boxes_between_its_ends() -> None:
    text = drawing("abc", [Edge("a", "b"), Edge("b", "c"), Edge("a", "c")]).draw_ascii()

    rows = text.splitlines()
    assert [row.strip("* ") for row in rows[7:10]] == ["+---+", "| b |", "+---+"]
    assert all(row.count("*") == 1 for row in rows[7:10])


def test_parts_that_do_not_hang_together_stand_side_by_side() -> None:
    assert drawing(["a", "bc"]).draw_ascii() == drawn(
        """
        +---+   +----+
        | a |   | bc |
        +---+   +----+
        """
    )


def test_a_node_that_leads_to_itself_says_so() -> None:
    assert "| a (loops) |" in drawing("a", [Edge("a", "a")]).draw_ascii()


def test_a_node_in_a_subgraph_has_the_name_of_the_subgraph_before_its_own() -> None:
    assert "| c:a |" in drawing(["c:a"]).draw_ascii()


def test_a_name_takes_one_line() -> None:
    assert r"| a\nb |" in drawing(["a\nb"]).draw_ascii()


def test_a_graph_without_nodes_is_an_empty_drawing() -> None:
    assert drawing([]).draw_ascii() == ""


def test_print_writes_the_drawing(capsys: pytest.CaptureFixture[str]) -> None:
    graph = compiled("a", [(START, "a")]).get_graph()

    graph.print_ascii()

    assert capsys.readouterr().out == graph.draw_ascii() + "\n"


@given(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("abcdefgh"), st.booleans()), max_size=20)
)
def test_no_box_covers_another(triples: list[tuple[str, str, bool]]) -> None:
    edges = [Edge(source, target, None, conditional) for source, target, conditional in triples]
    loops = {edge.source for edge in edges if edge.source == edge.target}

    text = drawing("abcdefgh", edges).draw_ascii()

    for name in "abcdefgh":
        assert text.count(f"| {name}{' (loops)' * (name in loops)} |") == 1
    assert text.count("v") <= len(set(triples))


def test_a_drawing_is_the_same_every_time() -> None:
    edges = [Edge(a, b) for a in "abcdef" for b in "fedcba" if a != b]

    assert len({drawing("abcdef", edges).draw_ascii() for _ in range(5)}) == 1


def test_without_grandalf_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.partition(".")[0] == "grandalf":
            monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "grandalf", None)
    monkeypatch.delitem(sys.modules, "perdure.graph.drawing.ascii", raising=False)

    with pytest.raises(MissingExtraError, match=r"need grandalf, .* pip install 'perdure\[draw\]'"):
        drawing("a").draw_ascii()


def test_another_module_that_is_missing_is_not_said_to_be_grandalf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "perdure.graph.drawing.ascii", None)

    with pytest.raises(ModuleNotFoundError, match=r"perdure\.graph\.drawing\.ascii"):
        drawing("a").draw_ascii()
