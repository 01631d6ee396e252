from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from perdure.constants import START
from perdure.errors import GraphValidationError
from perdure.graph.drawing import Graph
from perdure.graph.state import CompiledStateGraph
from perdure.pregel.graph import Pregel
from tests.unit.graph.drawing.graphs import builder, compiled, describe
from tests.unit.graph.drawing.programs import only_program, without_programs


def nested(depth: int) -> CompiledStateGraph:
    """Build a graph in a graph in a graph."""
    graph = compiled("ab", [(START, "a"), ("a", "b")])
    for _ in range(depth):
        graph = compiled("p", [(START, "p"), ("p", "c")], subgraphs={"c": graph})
    return graph


@pytest.mark.parametrize(
    ("xray", "expected"),
    [
        (False, ["p", "c"]),
        (0, ["p", "c"]),
        (1, ["p", "c:p", "c:c"]),
        (2, ["p", "c:p", "c:c:p", "c:c:c"]),
        (3, ["p", "c:p", "c:c:p", "c:c:c:a", "c:c:c:b"]),
        (True, ["p", "c:p", "c:c:p", "c:c:c:a", "c:c:c:b"]),
    ],
)
def test_xray_goes_as_deep_as_it_is_told(xray: bool | int, expected: list[str]) -> None:
    assert [*nested(3).get_graph(xray=xray).nodes][1:-1] == expected


def test_a_negative_depth_is_refused() -> None:
    with pytest.raises(GraphValidationError, match="how many levels of subgraphs to draw; -1 is none"):
        nested(1).get_graph(xray=-1)


async def test_aget_graph_returns_what_get_graph_returns() -> None:
    graph = nested(2)

    assert await graph.aget_graph() == graph.get_graph()
    assert await graph.aget_graph(xray=1) == graph.get_graph(xray=1)


class Recording(CompiledStateGraph):
    """A graph that keeps what its get_graph was asked."""

    asked: Any = None

    def get_graph(self, config: Any = None, *, xray: bool | int = False) -> Graph:
        self.asked = (config, xray)
        return super().get_graph(config, xray=xray)


async def test_subgraphs_are_given_the_config() -> None:
    child = nested(0)
    child.__class__ = Recording
    assert isinstance(child, Recording)
    graph = compiled("p", [(START, "p"), ("p", "c")], subgraphs={"c": child})
    config: Mapping[str, Any] = {"configurable": {"who": "me"}}

    graph.get_graph(config, xray=2)
    assert child.asked == (config, 1)

    child.asked = None
    await graph.aget_graph(config, xray=True)
    assert child.asked == (config, True)


def test_a_subgraph_that_cannot_be_drawn_stays_the_node_that_it_is() -> None:
    child = Pregel.from_plan(nested(0).plan)
    graph = compiled("p", [(START, "p"), ("p", "c")], subgraphs={"c": child})

    assert [*graph.get_graph(xray=True).nodes] == [START, "p", "c", "__end__"]


# Notebooks


def test_a_notebook_shows_a_picture_where_there_is_graphviz() -> None:
    bundle = nested(0)._repr_mimebundle_()

    assert bundle.keys() == {"text/plain", "image/png"}
    assert bundle["image/png"].startswith(b"\x89PNG")
    assert re.fullmatch(r"<.*CompiledStateGraph object at .*>", bundle["text/plain"])


def test_a_notebook_shows_text_for_mermaid_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    without_programs(monkeypatch, tmp_path)
    graph = nested(0)

    bundle = graph._repr_mimebundle_()

    assert bundle.keys() == {"text/plain", "text/markdown"}
    assert bundle["text/markdown"] == f"```mermaid\n{graph.get_graph().draw_mermaid()}```\n"


def test_a_notebook_shows_text_for_mermaid_where_graphviz_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    only_program(monkeypatch, tmp_path, "dot", "sys.exit(3)")

    assert nested(0)._repr_mimebundle_().keys() == {"text/plain", "text/markdown"}


def test_a_notebook_gets_the_kinds_it_asks_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without_programs(monkeypatch, tmp_path)
    graph = nested(0)

    assert graph._repr_mimebundle_(include={"text/plain", "image/png"}).keys() == {"text/plain"}
    assert graph._repr_mimebundle_(exclude={"text/plain"}).keys() == {"text/markdown"}


class Shy:
    def __str__(self) -> str:
        raise ValueError("not for you")


def test_a_graph_that_cannot_be_drawn_does_not_break_a_notebook(caplog: pytest.LogCaptureFixture) -> None:
    description = builder("a", [(START, "a")])
    describe(description, "a", metadata={"shy": Shy()})

    with caplog.at_level(logging.WARNING, logger="perdure"):
        bundle = description.compile()._repr_mimebundle_()

    assert bundle.keys() == {"text/plain"}
    assert "could not be drawn" in caplog.text
    assert "not for you" in caplog.text
