"""Copies of a compiled graph with some of its attributes replaced."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any, TypeVar

from perdure.errors import GraphValidationError
from perdure.pregel.plan.names import nearest

Copied = TypeVar("Copied")


def copy_with(graph: Copied, update: Mapping[str, Any]) -> Copied:
    """Copy a graph, with other values for the attributes in `update`.

    Raises GraphValidationError for a name that the graph has no attribute of.
    """
    copied = copy(graph)
    for name, value in update.items():
        if name not in vars(graph):
            raise GraphValidationError(
                f"A compiled graph has no attribute {name!r} that could be replaced."
                + nearest(name, vars(graph))
            )
        setattr(copied, name, value)
    return copied
