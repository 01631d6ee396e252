"""Drawings as plain data."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from perdure.graph.drawing.elements import Edge, Node


def plain_form(nodes: Iterable[Node], edges: Iterable[Edge]) -> dict[str, Any]:
    """Return nodes and edges as lists of dicts that JSON can hold."""
    return {"nodes": [_node(node) for node in nodes], "edges": [_edge(edge) for edge in edges]}


def _node(node: Node) -> dict[str, Any]:
    form: dict[str, Any] = {
        "id": node.id,
        "type": "schema" if node.is_start or node.is_end else "runnable",
        "data": {"id": _path(node.data), "name": node.name},
    }
    if node.metadata:
        form["metadata"] = _plain(node.metadata)
    return form


def _edge(edge: Edge) -> dict[str, Any]:
    form: dict[str, Any] = {"source": edge.source, "target": edge.target}
    if edge.data is not None:
        form["data"] = edge.data
    if edge.conditional:
        form["conditional"] = True
    return form


def _path(thing: object) -> list[str]:
    """Return the place where a node's action is defined: the parts of the module's name, then its own."""
    named = thing if inspect.isclass(thing) or inspect.isroutine(thing) else type(thing)
    return [*named.__module__.split("."), named.__qualname__]


def _plain(value: object) -> Any:
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return repr(value)
