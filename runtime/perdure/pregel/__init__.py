"""Running graphs."""

from perdure.pregel.graph import Pregel
from perdure.pregel.plan.builder import NodeBuilder

__all__ = ["NodeBuilder", "Pregel"]
