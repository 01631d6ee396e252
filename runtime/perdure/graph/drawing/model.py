"""Graph: a graph that can be drawn in several ways."""

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
        """The graph as text that Mermaid draws.

        Args:
            with_styles: False leaves out colours, metadata and configuration.
            node_colors: how ordinary nodes, the first, and the last one look.
            wrap_label_n_words: how many words of an edge's label stand in one line.
            frontmatter_config: Mermaid's configuration, at the head of the text; merged over ours.

        Raises:
            ValueError: Mermaid has no such curve, or labels cannot have that few words in a line.
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
        """The graph as boxes and lines, dotted where an edge is conditional. Labels are left out.

        Raises:
            MissingExtraError: grandalf, which lays the boxes out, is not installed.
        """
        text: str = _ascii().ascii_text(self.nodes.values(), self.edges)
        return text

    def print_ascii(self) -> None:
        """Write what `draw_ascii` returns to the standard output."""
        sys.stdout.write(self.draw_ascii() + "\n")

    def draw_dot(self) -> str:
        """The graph in the language of Graphviz."""
        return dot_text(self.nodes.values(), self.edges)

    def draw_png(self, output_file_path: str | Path | None = None) -> bytes:
        """The graph as a picture, made by Graphviz on this machine.

        Args:
            output_file_path: where to write the picture, too.

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
        """What `draw_png` returns, under the name that readers of Mermaid's pictures look for.

        Nothing is sent anywhere: Graphviz makes this picture as well, not Mermaid.

        Args:
            background_color: a name of a colour, "#rrggbb", or "transparent".
            padding: the margin, in pixels.
        """
        settings = {"bgcolor": background_color, "pad": str(padding / _PIXELS_PER_INCH)}
        return png(dot_text(self.nodes.values(), self.edges, settings), output_file_path)

    def to_json(self) -> dict[str, Any]:
        """The graph as `{"nodes": [...], "edges": [...]}` of what JSON can hold."""
        return plain_form(self.nodes.values(), self.edges)


def _ascii() -> ModuleType:
    """The module that draws boxes: loaded when asked for, as not everybody has grandalf."""
    try:
        return import_module("perdure.graph.drawing.ascii")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "grandalf":
            raise
        raise MissingExtraError(
            "draw_ascii() and print_ascii() need grandalf, which is not installed: "
            "pip install 'perdure[draw]'. draw_mermaid() needs nothing."
        ) from error
