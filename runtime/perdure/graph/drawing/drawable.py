"""Drawable: what a compiled graph can show of itself."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

from perdure.config import Config
from perdure.errors import DrawingError, GraphValidationError, MissingExtraError
from perdure.graph.drawing.expand import expand
from perdure.graph.drawing.model import Graph
from perdure.graph.drawing.static import Nodes, Outline, static_graph
from perdure.pregel.plan.plan import Plan

logger = logging.getLogger("perdure")


class Drawable:
    """The drawing of a compiled graph, for the class of compiled graphs to inherit.

    Attributes:
        plan: the graph as it is run.
        outline: what a drawing shows of the description.
        interrupt_before_nodes, interrupt_after_nodes: where a run pauses.
    """

    plan: Plan
    outline: Outline
    interrupt_before_nodes: Nodes
    interrupt_after_nodes: Nodes

    def get_graph(self, config: Config | None = None, *, xray: bool | int = False) -> Graph:
        """The graph to be drawn: `get_graph().draw_mermaid()`, for one. Nothing is run.

        Branches that do not say where they may go are drawn to every node. A node at which nothing
        starts is drawn to lead to the end. A dotted edge labelled "error" leads to an error handler.

        Args:
            config: given to the `get_graph` of subgraphs.
            xray: draw subgraphs in place of the nodes that they are: True, all of them; a number, so many
                levels deep. A subgraph stays a node if it is entered, or left, by several.

        Raises:
            GraphValidationError: `xray` is a negative number.
        """
        if xray < 0:
            raise GraphValidationError(f"xray is how many levels of subgraphs to draw; {xray} is none.")
        graph = static_graph(
            self.plan, self.outline, before=self.interrupt_before_nodes, after=self.interrupt_after_nodes
        )
        if not xray:
            return graph
        for name, node in self.outline.nodes.items():
            if isinstance(node.subgraph, Drawable):
                inner = node.subgraph.get_graph(config, xray=xray if xray is True else xray - 1)
                graph = expand(graph, name, inner)
        return graph

    async def aget_graph(self, config: Config | None = None, *, xray: bool | int = False) -> Graph:
        """What `get_graph` returns."""
        return self.get_graph(config, xray=xray)

    def _repr_mimebundle_(
        self, include: Collection[str] | None = None, exclude: Collection[str] | None = None
    ) -> dict[str, Any]:
        """What a notebook shows: a picture if Graphviz is there, else text for Mermaid."""
        bundle = {"text/plain": repr(self), **self._shown()}
        return {
            kind: shown
            for kind, shown in bundle.items()
            if (include is None or kind in include) and kind not in (exclude or ())
        }

    def _shown(self) -> dict[str, Any]:
        # Metadata is whatever users put there, and may refuse to be shown as text. That must not keep a
        # notebook from showing that there is a graph.
        try:
            graph = self.get_graph()
            try:
                return {"image/png": graph.draw_png()}
            except (DrawingError, MissingExtraError) as error:
                logger.info("The graph is shown as text for Mermaid: %s", error)
                return {"text/markdown": f"```mermaid\n{graph.draw_mermaid()}```\n"}
        except Exception:
            logger.warning("A graph could not be drawn for a notebook.", exc_info=True)
            return {}
