"""Describing graphs."""

from perdure.constants import END, START
from perdure.graph.state import StateGraph

__all__ = ["END", "START", "StateGraph"]
