from __future__ import annotations

import pytest

from perdure.constants import END, START
from perdure.graph.drawing import Edge, Graph, Node
from tests.unit.graph.drawing.graphs import compiled, drawing

HEAD = (
    "digraph {\n"
    '  node [shape=box, style="rounded,filled", fillcolor="#f2f0ff", fontname="Helvetica"];\n'
    '  edge [fontname="Helvetica", fontsize=11];\n'
)


def test_the_text_is_what_graphviz_draws() -> None:
    graph = compiled("ab", [(START, "a"), ("b", END)], branches=[("a", {"on": "b", END: END})]).get_graph()

    assert graph.draw_dot() == (
        HEAD + '  "__start__" [label="__start__", shape=oval, fillcolor="white"];\n'
        '  "a" [label="a"];\n'
        '  "b" [label="b"];\n'
        '  "__end__" [label="__end__", shape=oval, fillcolor="#bfb6fc"];\n'
        '  "__start__" -> "a";\n'
        '  "a" -> "__end__" [style=dashed];\n'
        '  "a" -> "b" [label="on", style=dashed];\n'
        '  "b" -> "__end__";\n'
        "}\n"
    )


def test_subgraphs_are_clusters() -> None:
    edges = [Edge("p", "c:a"), Edge("c:a", "c:b")]

    assert drawing(["p", "c:a", "c:b"], edges).draw_dot() == (
        HEAD + '  "p" [label="p"];\n'
        '  "p" -> "c:a";\n'
        '  subgraph "cluster:c" {\n'
        '    label="c";\n'
        '    "c:a" [label="a"];\n'
        '    "c:b" [label="b"];\n'
        '    "c:a" -> "c:b";\n'
        "  }\n"
        "}\n"
    )


def test_metadata_stands_below_the_name() -> None:
    node = Node("a", "a", None, {"team": "search", "defer": True})

    assert r'"a" [label="a\nteam = search\ndefer = True"];' in Graph({"a": node}).draw_dot()


@pytest.mark.parametrize(
    ("name", "id", "label"),
    [
        ('say "hi"', r"say \"hi\"", r"say \"hi\""),
        ("a\\", r"a\\", r"a\\"),
        (r"\N", r"\\N", r"\\N"),
        ("a\r\nb", r"a\nb", r"a\nb"),
        ("<b>", "<b>", "&lt;b&gt;"),
        ("&amp;", "&amp;", "&amp;amp;"),
        ("\0", "\ufffd", "\ufffd"),
    ],
)
def test_what_graphviz_would_make_something_of_is_shown_as_it_is(name: str, id: str, label: str) -> None:
    assert f'  "{id}" [label="{label}"];\n' in drawing([name]).draw_dot()
