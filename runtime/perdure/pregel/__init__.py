"""Running graphs."""

from perdure.pregel.builder import NodeBuilder
from perdure.pregel.graph import Pregel

__all__ = ["NodeBuilder", "Pregel"]
