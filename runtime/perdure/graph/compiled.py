"""The class of graphs that are compiled from a StateGraph."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Self, Unpack

from perdure.config import Config
from perdure.errors import GraphValidationError
from perdure.graph.description import Description
from perdure.graph.drawing.expand import expand_subgraphs
from perdure.graph.drawing.model import Graph
from perdure.graph.drawing.notebook import mime_bundle
from perdure.graph.drawing.static import Outline, outline_of, static_graph
from perdure.pregel.graph import Pregel
from perdure.pregel.options import GraphOptions
from perdure.pregel.parameters import ContextT, InputT, OutputT_co, StateT
from perdure.pregel.plan.plan import Plan


class CompiledStateGraph(Pregel[StateT, ContextT, InputT, OutputT_co]):
    """A graph that was compiled from a StateGraph: it can be run, and drawn.

    Attributes:
        builder: the StateGraph that it was compiled from.
        outline: the description as it was compiled, for drawings.
    """

    builder: Description
    outline: Outline

    @classmethod
    def from_description(cls, description: Description, plan: Plan, **options: Unpack[GraphOptions]) -> Self:
        """Make a graph of a description and the plan that was made of it."""
        options["context_schema"] = description.context_schema
        graph = cls.from_plan(plan, **options)
        graph.builder = description
        graph.outline = outline_of(description)
        return graph

    def get_graph(self, config: Config | None = None, *, xray: bool | int = False) -> Graph:
        """Return the graph to be drawn: `get_graph().draw_mermaid()`, for one. Nothing is run.

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
        return expand_subgraphs(graph, self.outline, config, xray) if xray else graph

    async def aget_graph(self, config: Config | None = None, *, xray: bool | int = False) -> Graph:
        """Return what `get_graph` returns."""
        return self.get_graph(config, xray=xray)

    def _repr_mimebundle_(
        self, include: Collection[str] | None = None, exclude: Collection[str] | None = None
    ) -> dict[str, Any]:
        """Return what a notebook shows: a picture if Graphviz is there, else text for Mermaid."""
        return mime_bundle(self, include, exclude)
