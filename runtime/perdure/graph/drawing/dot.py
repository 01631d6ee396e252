"""Drawings in the language of Graphviz."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from html import escape

from perdure.graph.drawing.elements import Block, Edge, Node, blocks, group_id

_NODES = 'node [shape=box, style="rounded,filled", fillcolor="#f2f0ff", fontname="Helvetica"];'
_EDGES = 'edge [fontname="Helvetica", fontsize=11];'


def dot_text(nodes: Iterable[Node], edges: Iterable[Edge], settings: Mapping[str, str] | None = None) -> str:
    """Write a digraph.

    Args:
        settings: attributes of the whole picture.
    """
    lines = [f"{name}={_quoted(value)};" for name, value in (settings or {}).items()]
    lines += [_NODES, _EDGES, *_block(blocks(nodes, edges))]
    return "\n".join(["digraph {", *(f"  {line}" for line in lines), "}"]) + "\n"


def _block(block: Block) -> Iterator[str]:
    for node in block.nodes:
        yield _node(node)
    for edge in block.edges:
        yield _edge(edge)
    for inner in block.inner:
        yield f"subgraph {_quoted('cluster:' + group_id(inner.group))} {{"
        yield f"  label={_shown(inner.group[-1])};"
        yield from (f"  {line}" for line in _block(inner))
        yield "}"


def _node(node: Node) -> str:
    said = (f"{key} = {value}" for key, value in node.metadata.items())
    attributes = [f"label={_shown(node.name, *said)}"]
    if node.is_start or node.is_end:
        attributes += ["shape=oval", f'fillcolor="{"white" if node.is_start else "#bfb6fc"}"']
    return f"{_quoted(node.id)} [{', '.join(attributes)}];"


def _edge(edge: Edge) -> str:
    attributes = [] if edge.data is None else [f"label={_shown(edge.data)}"]
    if edge.conditional:
        attributes.append("style=dashed")
    tail = f" [{', '.join(attributes)}]" if attributes else ""
    return f"{_quoted(edge.source)} -> {_quoted(edge.target)}{tail};"


def _shown(*lines: str) -> str:
    """Write a label. Entities such as `&amp;`, which Graphviz would resolve, are shown as written."""
    return _quoted("\n".join(escape(line, quote=False) for line in lines))


def _quoted(text: str) -> str:
    for character, written in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", ""), ("\0", "\ufffd")):
        text = text.replace(character, written)
    return f'"{text}"'
