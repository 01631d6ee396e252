"""Drawings as boxes and lines of characters; grandalf lays the boxes out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from grandalf.graphs import Edge as LaidEdge
from grandalf.graphs import Vertex, graph_core
from grandalf.layouts import SugiyamaLayout

from perdure.graph.drawing.elements import Edge, Node
from perdure.graph.drawing.links import Link, links_of, parts_of

_BOX_ROWS = 3
_ROWS_BETWEEN = 4
_COLUMNS_BETWEEN = 3


def ascii_text(nodes: Collection[Node], edges: Collection[Edge]) -> str:
    """Draw boxes and lines of characters; see Graph.draw_ascii."""
    to_themselves = {edge.source for edge in edges if edge.source == edge.target}
    labels = {node.id: _printable(node.id) + " (loops)" * (node.id in to_themselves) for node in nodes}
    links = links_of(list(labels), edges)
    canvas = _Canvas()
    left = 0
    for names, between in parts_of(list(labels), links):
        placed = _lay_out({name: labels[name] for name in names}, between, left)
        _draw(canvas, placed)
        left = 1 + _COLUMNS_BETWEEN + max(spot.right for spot in placed.boxes.values())
    return canvas.text()


def _printable(name: str) -> str:
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


@dataclass(slots=True)
class _Spot:
    """A place in a layer: a box or, without a label, a point on a line.

    Attributes:
        w, h, xy: the size, which grandalf reads, and the centre, which it writes.
        layer: the number of its layer, from the top.
        left: its first column.
    """

    label: str | None
    w: int
    h: int = _BOX_ROWS
    xy: tuple[float, float] = (0.0, 0.0)
    layer: int = 0
    left: int = 0

    @property
    def right(self) -> int:
        return self.left + self.w - 1

    @property
    def middle(self) -> int:
        return self.left + self.w // 2

    @property
    def top(self) -> int:
        return self.layer * (_BOX_ROWS + _ROWS_BETWEEN)

    @property
    def bottom(self) -> int:
        return self.top + _BOX_ROWS - 1


@dataclass(frozen=True, slots=True)
class _Placed:
    """A connected part of a graph, laid out.

    Attributes:
        boxes: by node.
        lines: each with the spots that it passes, from the top.
    """

    boxes: dict[str, _Spot]
    lines: list[tuple[Link, list[_Spot]]]


def _lay_out(labels: dict[str, str], links: Sequence[Link], left: int) -> _Placed:
    """Place boxes for the labels: none starts left of column `left`, and none covers another."""
    vertices = {name: Vertex(name) for name in labels}
    for name, vertex in vertices.items():
        vertex.view = _Spot(labels[name], w=len(labels[name]) + 4)
    edges = [LaidEdge(vertices[link.upper], vertices[link.lower]) for link in links]
    layout = SugiyamaLayout(graph_core(list(vertices.values()), edges))
    layout.xspace, layout.dw, layout.dh = _COLUMNS_BETWEEN, 1, _BOX_ROWS
    layout.init_all(inverted_edges=[])
    layout.draw()
    spots = _settle(layout.layers, left)
    boxes = {name: spots[vertex] for name, vertex in vertices.items()}
    lines = []
    for link, edge in zip(links, edges, strict=True):
        passed = layout.ctrls.get(edge) or {0: vertices[link.upper], 1: vertices[link.lower]}
        lines.append((link, [spots[passed[layer]] for layer in sorted(passed)]))
    return _Placed(boxes, lines)


def _settle(layers: Sequence[Sequence[Any]], left: int) -> dict[Any, _Spot]:
    """Round the places that grandalf found to whole columns, and return the spot of each vertex."""
    spots: dict[Any, _Spot] = {}
    for number, layer in enumerate(layers):
        for vertex in layer:
            spot = vertex.view if isinstance(vertex.view, _Spot) else _Spot(None, w=1, xy=vertex.view.xy)
            spot.layer, spot.left = number, round(spot.xy[0] - spot.w / 2)
            spots[vertex] = spot
    shift = left - min(spot.left for spot in spots.values())
    for layer in layers:
        free = left
        for spot in sorted((spots[vertex] for vertex in layer), key=lambda spot: spot.left):
            spot.left = max(spot.left + shift, free)
            free = spot.right + 1 + _COLUMNS_BETWEEN
    return spots


def _draw(canvas: _Canvas, placed: _Placed) -> None:
    heads = []
    for link, spots in placed.lines:
        mark = "." if link.conditional else "*"
        for upper, lower in pairwise(spots):
            canvas.line(mark, (upper.bottom + 1, upper.middle), (lower.top - 1, lower.middle))
        for passed in spots[1:-1]:
            canvas.line(mark, (passed.top, passed.middle), (passed.bottom, passed.middle))
        if link.down:
            heads.append(("v", spots[-1].top - 1, spots[-1].middle))
        if link.up:
            heads.append(("^", spots[0].bottom + 1, spots[0].middle))
    for head, row, column in heads:
        canvas.write(row, column, head)
    for box in placed.boxes.values():
        canvas.write(box.top, box.left, f"+{'-' * (box.w - 2)}+")
        canvas.write(box.top + 1, box.left, f"| {box.label} |")
        canvas.write(box.bottom, box.left, f"+{'-' * (box.w - 2)}+")


@dataclass(frozen=True, slots=True)
class _Canvas:
    rows: dict[int, dict[int, str]] = field(default_factory=dict)

    def write(self, row: int, column: int, text: str) -> None:
        self.rows.setdefault(row, {}).update(enumerate(text, column))

    def line(self, mark: str, start: tuple[int, int], end: tuple[int, int]) -> None:
        """Draw a line of marks. Where a plain line crosses a conditional one, the plain one is on top."""
        (row, column), (last_row, last_column) = start, end
        steps = max(abs(last_row - row), abs(last_column - column), 1)
        for step in range(steps + 1):
            at = row + round((last_row - row) * step / steps)
            cells = self.rows.setdefault(at, {})
            where = column + round((last_column - column) * step / steps)
            if cells.get(where) != "*":
                cells[where] = mark

    def text(self) -> str:
        lines = []
        for row in range(max(self.rows, default=-1) + 1):
            cells = self.rows.get(row, {})
            lines.append("".join(cells.get(column, " ") for column in range(max(cells, default=-1) + 1)))
        return "\n".join(lines)
