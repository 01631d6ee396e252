from __future__ import annotations

from typing import Any

import pytest

from perdure.constants import END, START
from perdure.graph.drawing import Edge, Graph, Node, NodeStyles
from tests.unit.graph.drawing.graphs import builder, compiled, describe, drawing, read


def test_the_text_is_what_mermaid_draws() -> None:
    description = builder("abc", [(START, "a"), ("b", "c")], branches=[("a", {"go on": "b", "c": "c"})])
    describe(description, "c", destinations={"a": None})
    graph = description.compile()
    graph.interrupt_before_nodes = ["b"]

    assert graph.get_graph().draw_mermaid() == (
        "---\n"
        "config:\n"
        "  flowchart:\n"
        "    curve: linear\n"
        "---\n"
        "graph TD;\n"
        "\t__start__([<p>__start__</p>]):::first\n"
        "\ta(a)\n"
        "\tb(b<hr/><small><em>__interrupt = before</em></small>)\n"
        "\tc(c)\n"
        "\t__start__ --> a;\n"
        "\ta -. &nbsp;go on&nbsp; .-> b;\n"
        "\ta -.-> c;\n"
        "\tb --> c;\n"
        "\tc -.-> a;\n"
        "\tclassDef default fill:#f2f0ff,line-height:1.2\n"
        "\tclassDef first fill-opacity:0\n"
        "\tclassDef last fill:#bfb6fc\n"
    )


def test_the_end_is_the_last_node() -> None:
    text = compiled("a", [(START, "a"), ("a", END)]).get_graph().draw_mermaid()

    assert "\t__end__([<p>__end__</p>]):::last\n" in text


def test_a_plain_edge_with_a_label_has_an_unbroken_line() -> None:
    text = Graph(drawing("ab").nodes, [Edge("a", "b", "it")]).draw_mermaid()

    assert "\ta -- &nbsp;it&nbsp; --> b;\n" in text


def test_without_styles_there_is_what_is_needed_to_see_the_graph() -> None:
    graph = compiled(["a", "b c"], [(START, "a"), ("a", "b c")]).get_graph()

    assert graph.draw_mermaid(with_styles=False) == (
        "graph TD;\n\tb\\20c(b c)\n\t__start__ --> a;\n\ta --> b\\20c;\n\tb\\20c --> __end__;\n"
    )


def test_subgraphs_are_groups_in_groups() -> None:
    edges = [Edge("p", "c:a"), Edge("c:a", "c:d:x"), Edge("c:d:x", "c:d:y"), Edge("c:d:y", "q")]
    text = drawing(["p", "c:a", "c:d:x", "c:d:y", "q"], edges).draw_mermaid(with_styles=False)

    assert text == (
        "graph TD;\n"
        "\tp --> c\\3aa;\n"
        "\tc\\3ad\\3ay --> q;\n"
        "\tsubgraph c\n"
        "\tc\\3aa(a)\n"
        "\tc\\3aa --> c\\3ad\\3ax;\n"
        "\tsubgraph c\\3ad [d]\n"
        "\tc\\3ad\\3ax(x)\n"
        "\tc\\3ad\\3ay(y)\n"
        "\tc\\3ad\\3ax --> c\\3ad\\3ay;\n"
        "\tend\n"
        "\tend\n"
    )


def test_a_group_and_a_node_of_one_name_have_different_ids() -> None:
    said = read(drawing(["d", "c:d:x", "c:d:y"]).draw_mermaid())

    assert said.groups.keys() == {"c", "c\\3ad"}
    assert said.labels == {"d": "d", "c\\3ad\\3ax": "x", "c\\3ad\\3ay": "y"}


def test_a_group_that_is_called_like_a_word_of_mermaid_has_a_safe_id() -> None:
    assert "\tsubgraph \\65nd [end]\n" in drawing(["end:a", "end:b"]).draw_mermaid()


def test_metadata_stands_below_the_name() -> None:
    node = Node("a", "a", None, {"team": "search", "defer": True})

    text = Graph({"a": node}).draw_mermaid()

    assert "\ta(a<hr/><small><em>team = search<br/>defer = True</em></small>)\n" in text


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("get-weather", "get-weather"),
        ("v1.2", "v1.2"),
        ("two words", "two words"),
        ("été", "été"),
        ("(x)", "#40;x#41;"),
        ('"x"', "#34;x#34;"),
        ("a;b", "a#59;b"),
        ("<lambda>", "#60;lambda#62;"),
        ("&amp;", "#38;amp#59;"),
        ("#35;", "#35;35#59;"),
        ("a-->b", "a#45;#45;#62;b"),
        ("1. x", "1#46; x"),
        ("- x", "#45; x"),
        ("`x`", "#96;x#96;"),
        ("a\nb", "a#10;b"),
        ("__x__", "<p>__x__</p>"),
        ("_x", "<p>_x</p>"),
        (" ", "&nbsp;"),
    ],
)
def test_what_mermaid_would_make_something_of_is_written_as_an_entity(name: str, label: str) -> None:
    assert f"({label})\n" in drawing([name]).draw_mermaid()


@pytest.mark.parametrize(
    ("label", "written"),
    [
        ("a-b", "a-b"),
        ("1.5", "1#46;5"),
        ("a .-> b", "a #46;#45;#62; b"),
        ("", "&nbsp;"),
        ("|x|", "#124;x#124;"),
    ],
)
def test_a_label_cannot_end_its_edge(label: str, written: str) -> None:
    for conditional, arrow in [(True, "-. &nbsp;{}&nbsp; .->"), (False, "-- &nbsp;{}&nbsp; -->")]:
        text = drawing("ab", [Edge("a", "b", label, conditional)]).draw_mermaid()
        assert f"\ta {arrow.format(written)} b;\n" in text


def test_labels_are_wrapped_after_some_words() -> None:
    graph = drawing("ab", [Edge("a", "b", "one two three four five six seven eight nine ten", True)])

    assert "&nbsp;one two three four five six seven eight nine<br/>ten&nbsp;" in graph.draw_mermaid()
    assert "five<br/>six" in graph.draw_mermaid(wrap_label_n_words=5)


def test_a_label_cannot_have_no_words_in_a_line() -> None:
    with pytest.raises(ValueError, match="wrap_label_n_words must be at least 1, not 0"):
        drawing("a").draw_mermaid(wrap_label_n_words=0)


def test_the_curve_can_be_chosen() -> None:
    assert "\n    curve: stepAfter\n" in drawing("a").draw_mermaid(curve_style="stepAfter")


def test_a_curve_that_mermaid_does_not_have_is_refused() -> None:
    wrong: Any = "round"
    with pytest.raises(ValueError, match=r"Mermaid has no curve 'round'\. It has: basis, .*, stepBefore\."):
        drawing("a").draw_mermaid(curve_style=wrong)


def test_the_colours_can_be_chosen() -> None:
    styles = NodeStyles(default="fill:#fff", first="fill:#eee", last="fill:#ddd")

    lines = drawing("a").draw_mermaid(node_colors=styles).splitlines()

    assert lines[-3:] == [
        "\tclassDef default fill:#fff",
        "\tclassDef first fill:#eee",
        "\tclassDef last fill:#ddd",
    ]


def test_configuration_is_merged_over_ours() -> None:
    given = {
        "title": "A: graph",
        "config": {"theme": "dark", "look": "no", "flowchart": {"curve": "basis", "padding": 4}, "empty": {}},
    }

    text = drawing("a").draw_mermaid(frontmatter_config=given)

    assert text.startswith(
        "---\n"
        'title: "A: graph"\n'
        "config:\n"
        "  theme: dark\n"
        '  look: "no"\n'
        "  flowchart:\n"
        "    curve: basis\n"
        "    padding: 4\n"
        "  empty: {}\n"
        "---\n"
        "graph TD;\n"
    )
    assert given["config"] == {
        "theme": "dark",
        "look": "no",
        "flowchart": {"curve": "basis", "padding": 4},
        "empty": {},
    }
