"""Graphs to draw, and what a test needs to look at drawings of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import unescape
from typing import Any, NamedTuple, TypedDict

from perdure import START, StateGraph
from perdure.graph.description import StateNode
from perdure.graph.drawing import Edge, Graph, Node
from perdure.graph.state import CompiledStateGraph
from perdure.pregel.plan.plan import Calling

Branches = Sequence[tuple[str, Any]]


class State(TypedDict):
    x: int


async def work(state: State) -> None:
    """Change nothing."""


def builder(
    nodes: str | Sequence[str],
    edges: Sequence[tuple[str, str]],
    *,
    joins: Sequence[tuple[Sequence[str], str]] = (),
    branches: Branches = (),
    subgraphs: Mapping[str, Any] | None = None,
    **schemas: Any,
) -> StateGraph:
    """Build nodes that do nothing; branches are pairs of a source and a map, or None."""
    graph = StateGraph(State, **schemas)
    for name in nodes:
        graph.add_node(name, work)
    for name, child in (subgraphs or {}).items():
        graph.nodes[name] = StateNode(action=work, calling=Calling.COROUTINE, subgraph=child)
    for start, end in edges:
        graph.add_edge(start, end)
    for starts, end in joins:
        graph.add_edge(list(starts), end)
    for number, (source, ends) in enumerate(branches):

        def path(state: State) -> str:
            return START

        path.__name__ = f"path_{number}"
        graph.add_conditional_edges(source, path, ends)
    return graph


def compiled(*args: Any, **kwargs: Any) -> CompiledStateGraph:
    return builder(*args, **kwargs).compile()


def describe(graph: StateGraph, name: str, **changes: Any) -> None:
    """Give a node attributes, as add_node does for those who ask for them."""
    graph.nodes[name] = replace(graph.nodes[name], **changes)


def drawing(nodes: Sequence[str], edges: Sequence[Edge] = ()) -> Graph:
    """Make a drawing of nodes by their ids."""
    return Graph({name: Node(name, name.rpartition(":")[2], work) for name in nodes}, list(edges))


class Read(NamedTuple):
    """The content of a Mermaid text: labels by id, and edges by ids, with their labels."""

    labels: dict[str, str]
    edges: Counter[Edge]
    groups: dict[str, list[str]]


_NODE = re.compile(r"(?P<id>[\w\\-]+)(?:\(\[(?P<round>[^\[\]()]*)\]\)(?::::\w+)?|\((?P<box>[^\[\]()]*)\))")
_EDGE = re.compile(
    r"(?P<source>[\w\\-]+) "
    r"(?:-->|(?P<dotted>-\.->)|-- (?P<label>[^.]*?) -->|-\. (?P<dotted_label>[^.]*) \.->)"
    r" (?P<target>[\w\\-]+);"
)
_GROUP = re.compile(r"subgraph (?P<id>[\w\\-]+)(?: \[[^\[\]()]*\])?")
_ENTITY = re.compile(r"#(\d+);")


def read(text: str) -> Read:
    """Read a Mermaid text strictly: a line that is no node, edge, group or style is an error."""
    found = Read({}, Counter(), {})
    around: list[str] = []
    body = text.partition("graph TD;\n")[2].splitlines()
    for line in (each.strip() for each in body if not each.startswith("\tclassDef ")):
        if match := _EDGE.fullmatch(line):
            label = match["label"] or match["dotted_label"]
            dotted = match["dotted"] or match["dotted_label"] is not None
            found.edges[Edge(match["source"], match["target"], plain(label), bool(dotted))] += 1
        elif match := _GROUP.fullmatch(line):
            around.append(match["id"])
            found.groups[match["id"]] = []
        elif line == "end":
            around.pop()
        elif match := _NODE.fullmatch(line):
            assert match["id"] not in found.labels, f"{match['id']} is there twice"
            found.labels[match["id"]] = plain(match["round"] or match["box"]) or ""
            if around:
                found.groups[around[-1]].append(match["id"])
        else:
            raise AssertionError(f"Mermaid could not read {line!r}")
    assert not around, f"{around} are not closed"
    return found


def plain(label: str | None) -> str | None:
    """Return a label as it is shown."""
    if label is None:
        return None
    text = re.sub(r"</?p>|<hr/>.*", "", label).replace("<br/>", " ")
    return unescape(_ENTITY.sub(lambda found: chr(int(found[1])), text.replace("&nbsp;", "")))
