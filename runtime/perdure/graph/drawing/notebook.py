"""Graphs as notebooks show them."""

from __future__ import annotations

import logging
from collections.abc import Collection

from perdure.errors import DrawingError, MissingExtraError
from perdure.graph.drawing.expand import Drawable

logger = logging.getLogger("perdure")

Bundle = dict[str, str | bytes]
"""Forms of one thing to show, by MIME type."""


def mime_bundle(
    graph: Drawable, include: Collection[str] | None = None, exclude: Collection[str] | None = None
) -> Bundle:
    """Return a picture of a graph if Graphviz is there, else text for Mermaid, beside its repr.

    Args:
        include: only forms of these MIME types; None: all.
        exclude: no forms of these MIME types.
    """
    bundle: Bundle = {"text/plain": repr(graph), **_drawn(graph)}
    return {
        kind: shown
        for kind, shown in bundle.items()
        if (include is None or kind in include) and kind not in (exclude or ())
    }


def _drawn(drawable: Drawable) -> Bundle:
    # Metadata is whatever users put there, and may refuse to be shown as text. That must not keep a
    # notebook from showing that there is a graph.
    try:
        graph = drawable.get_graph()
        try:
            return {"image/png": graph.draw_png()}
        except (DrawingError, MissingExtraError) as error:
            logger.info("The graph is shown as text for Mermaid: %s", error)
            return {"text/markdown": f"```mermaid\n{graph.draw_mermaid()}```\n"}
    except Exception:
        logger.warning("A graph could not be drawn for a notebook.", exc_info=True)
        return {}
