"""Drawings of graphs."""

from perdure.graph.drawing.elements import Edge, Node
from perdure.graph.drawing.expand import Drawable
from perdure.graph.drawing.mermaid import CurveStyle, NodeStyles
from perdure.graph.drawing.model import Graph
from perdure.graph.drawing.static import Outline, outline_of

__all__ = ["CurveStyle", "Drawable", "Edge", "Graph", "Node", "NodeStyles", "Outline", "outline_of"]
