"""Graph: the drawing of a graph, in several formats."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from perdure.errors import MissingExtraError
from perdure.graph.drawing.dot import dot_text
from perdure.graph.drawing.elements import Edge, Node
from perdure.graph.drawing.export import plain_form
from perdure.graph.drawing.mermaid import CurveStyle, NodeStyles, mermaid_text
from perdure.graph.drawing.picture import png

_PIXELS_PER_INCH = 96


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph as drawn.

    Attributes:
        nodes: by id: `__start__`, the others in the order in which they were added, `__end__` if an
            edge leads there.
        edges: sorted by source and target.
    """

    nodes: dict[str, Node] = field(default_factory=dict)
    edges: list[Edge] = field(default_factory=list)

    def draw_mermaid(
        self,
        *,
        with_styles: bool = True,
        curve_style: CurveStyle = "linear",
        node_colors: NodeStyles | None = None,
        wrap_label_n_words: int = 9,
        frontmatter_config: Mapping[str, Any] | None = None,
    ) -> str:
        """Return the graph as text for Mermaid.

        Args:
            with_styles: False leaves out colours, metadata and configuration.
            node_colors: the look of ordinary nodes, of the first, and of the last one.
            wrap_label_n_words: the most words in one line of an edge's label.
            frontmatter_config: Mermaid's configuration, at the head of the text; merged over ours.

        Raises:
            ValueError: Mermaid has no such curve, or `wrap_label_n_words` is less than 1.
        """
        return mermaid_text(
            self.nodes.values(),
            self.edges,
            with_styles=with_styles,
            curve_style=curve_style,
            styles=node_colors or NodeStyles(),
            words=wrap_label_n_words,
            configuration=frontmatter_config or {},
        )

    def draw_ascii(self) -> str:
        """Return the graph as boxes and lines, dotted where an edge is conditional. Labels are left out.

        Raises:
            MissingExtraError: grandalf, which lays the boxes out, is not installed.
        """
        text: str = _ascii().ascii_text(self.nodes.values(), self.edges)
        return text

    def print_ascii(self) -> None:
        """Write what `draw_ascii` returns to the standard output."""
        sys.stdout.write(self.draw_ascii() + "\n")

    def draw_dot(self) -> str:
        """Return the graph in the language of Graphviz."""
        return dot_text(self.nodes.values(), self.edges)

    def draw_png(self, output_file_path: str | Path | None = None) -> bytes:
        """Return the graph as a picture, made by Graphviz on this machine.

        Args:
            output_file_path: a file to write the picture to as well.

        Raises:
            MissingExtraError: there is no Graphviz.
            DrawingError: Graphviz did not make a picture of it.
        """
        return png(self.draw_dot(), output_file_path)

    def draw_mermaid_png(
        self,
        *,
        output_file_path: str | Path | None = None,
        background_color: str = "white",
        padding: int = 10,
    ) -> bytes:
        """Return a picture like that of `draw_png`: Graphviz makes it, not Mermaid.

        Users of LangGraph know pictures by this name. Nothing is sent to a server.

        Args:
            background_color: a name of a colour, "#rrggbb", or "transparent".
            padding: the margin, in pixels.
        """
        settings = {"bgcolor": background_color, "pad": str(padding / _PIXELS_PER_INCH)}
        return png(dot_text(self.nodes.values(), self.edges, settings), output_file_path)

    def to_json(self) -> dict[str, Any]:
        """Return the graph as `{"nodes": [...], "edges": [...]}`, which JSON can hold."""
        return plain_form(self.nodes.values(), self.edges)


def _ascii() -> ModuleType:
    """Import the module that draws boxes; it needs grandalf, which is optional.

    Raises MissingExtraError if grandalf is not installed.
    """
    try:
        return import_module("perdure.graph.drawing.ascii")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "grandalf":
            raise
        raise MissingExtraError(
            "draw_ascii() and print_ascii() need grandalf, which is not installed: "
            "pip install 'perdure[draw]'. draw_mermaid() needs nothing."
        ) from error
