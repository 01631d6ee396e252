"""Running graphs."""

from perdure.pregel.graph import Pregel

__all__ = ["Pregel"]
