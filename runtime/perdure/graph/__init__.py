"""Describing graphs."""

from perdure.constants import END, START
from perdure.graph.state import CompiledStateGraph, StateGraph

__all__ = ["END", "START", "CompiledStateGraph", "StateGraph"]
