"""Descriptions of graphs: StateGraph, and the graphs that it compiles to."""

from perdure.constants import END, START
from perdure.graph.state import CompiledStateGraph, StateGraph

__all__ = ["END", "START", "CompiledStateGraph", "StateGraph"]
