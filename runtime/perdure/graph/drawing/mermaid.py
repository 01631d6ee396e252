"""Drawings as text for Mermaid."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from perdure.graph.drawing.elements import Block, Edge, Node, blocks, group_id
from perdure.graph.drawing.safe_ids import safe_ids

CurveStyle = Literal[
    "basis",
    "bumpX",
    "bumpY",
    "cardinal",
    "catmullRom",
    "linear",
    "monotoneX",
    "monotoneY",
    "natural",
    "step",
    "stepAfter",
    "stepBefore",
]
"""Mermaid's ways to bend the lines between nodes."""


@dataclass(frozen=True, slots=True)
class NodeStyles:
    """The look of nodes, in the words of Mermaid's `classDef`."""

    default: str = "fill:#f2f0ff,line-height:1.2"
    first: str = "fill-opacity:0"
    last: str = "fill:#bfb6fc"


# Letters of every script and some punctuation are safe in any of Mermaid's texts, but neither what looks like
# an arrow (`a--b`) nor what looks like a list (`1. a`).
_NOT_PLAIN = re.compile(r"[^\w ,=.\-]|(?<![\w])[.\-]|[.\-](?!\w)")
_MARKED = re.compile(r"^[_]|[_]$")


def mermaid_text(
    nodes: Iterable[Node],
    edges: Iterable[Edge],
    *,
    with_styles: bool,
    curve_style: CurveStyle,
    styles: NodeStyles,
    words: int,
    configuration: Mapping[str, Any],
) -> str:
    """Write text for Mermaid; see Graph.draw_mermaid."""
    if curve_style not in get_args(CurveStyle):
        known = ", ".join(get_args(CurveStyle))
        raise ValueError(f"Mermaid has no curve {curve_style!r}. It has: {known}.")
    if words < 1:
        raise ValueError(f"wrap_label_n_words must be at least 1, not {words}.")
    outermost = blocks(nodes, edges)
    writer = _Writer(safe_ids(_names(outermost)), with_styles, words)
    lines = ["graph TD;", *(f"\t{line}" for line in writer.block(outermost))]
    if with_styles:
        lines = [*_front_matter(curve_style, configuration), *lines, *_classes(styles)]
    return "\n".join(lines) + "\n"


def _names(block: Block) -> Iterator[str]:
    """Yield the names of all that needs an id: nodes, and the groups around them."""
    yield from (node.id for node in block.nodes)
    for inner in block.inner:
        yield group_id(inner.group)
        yield from _names(inner)


def _front_matter(curve_style: str, configuration: Mapping[str, Any]) -> list[str]:
    config = dict(configuration.get("config", {}))
    config["flowchart"] = {"curve": curve_style, **config.get("flowchart", {})}
    return ["---", *_yaml({**configuration, "config": config}), "---"]


def _yaml(value: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Write mappings as YAML, and other values as JSON, which is a part of YAML."""
    for key, each in value.items():
        if isinstance(each, Mapping) and each:
            yield f"{indent}{key}:"
            yield from _yaml(each, indent + "  ")
        else:
            plain = isinstance(each, str) and each.isalpha() and each.lower() not in _YAML_WORDS
            yield f"{indent}{key}: {each if plain else json.dumps(each)}"


_YAML_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


def _classes(styles: NodeStyles) -> list[str]:
    return [
        f"\tclassDef default {styles.default}",
        f"\tclassDef first {styles.first}",
        f"\tclassDef last {styles.last}",
    ]


@dataclass(frozen=True, slots=True)
class _Writer:
    ids: Mapping[str, str]
    with_styles: bool
    words: int

    def block(self, block: Block) -> Iterator[str]:
        """Write the lines of a block: its nodes, its edges, and the blocks in it."""
        for node in block.nodes:
            # Without styles, a node whose id is its name need not be declared: its edges do that.
            if self.with_styles or self.ids[node.id] != node.name or block.group:
                yield self._node(node)
        for edge in block.edges:
            yield f"{self.ids[edge.source]} {self._arrow(edge)} {self.ids[edge.target]};"
        for inner in block.inner:
            name, title = self.ids[group_id(inner.group)], _text(inner.group[-1])
            yield f"subgraph {name}" if name == title else f"subgraph {name} [{title}]"
            yield from self.block(inner)
            yield "end"

    def _node(self, node: Node) -> str:
        label = _text(node.name)
        if _MARKED.search(label):
            label = f"<p>{label}</p>"
        if self.with_styles and node.metadata:
            said = "<br/>".join(_text(f"{key} = {value}") for key, value in node.metadata.items())
            label += f"<hr/><small><em>{said}</em></small>"
        name = self.ids[node.id]
        if node.is_start or node.is_end:
            style = ":::first" if node.is_start else ":::last"
            return f"{name}([{label}])" + style * self.with_styles
        return f"{name}({label})"

    def _arrow(self, edge: Edge) -> str:
        if edge.data is None:
            return "-.->" if edge.conditional else "-->"
        words = edge.data.split() or [""]
        lines = (" ".join(words[at : at + self.words]) for at in range(0, len(words), self.words))
        # A full stop can be the beginning of the dotted arrow that ends the label.
        label = f"&nbsp;{'<br/>'.join(map(_text, lines)).replace('.', '#46;')}&nbsp;"
        return f"-. {label} .->" if edge.conditional else f"-- {label} -->"


def _text(text: str) -> str:
    """Write as entities all characters that have a meaning in Mermaid, Markdown or HTML."""
    return _NOT_PLAIN.sub(lambda found: f"#{ord(found[0])};", text).strip() or "&nbsp;"
