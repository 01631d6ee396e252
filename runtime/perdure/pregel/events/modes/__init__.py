"""Stream modes: one file for each, named as in StreamMode, that projects facts to payloads of events.

A mode's file has `LISTENS`, the kinds of facts that it projects, and `project`, which returns the payloads
for one fact. To add a mode, add its file, and its name to StreamMode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple, get_args

from perdure.data import StreamMode
from perdure.pregel.events.facts import Fact


class Projection(NamedTuple):
    """The projection of facts to the payloads of one mode's events."""

    mode: StreamMode
    listens: frozenset[type[Fact]]
    project: Callable[[Any], Sequence[Any]]


def _projection(mode: StreamMode) -> Projection:
    module = import_module(f"{__name__}.{mode}")
    return Projection(mode, frozenset(module.LISTENS), module.project)


PROJECTIONS: Final[Mapping[str, Projection]] = {mode: _projection(mode) for mode in get_args(StreamMode)}
