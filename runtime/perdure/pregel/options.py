"""Keyword arguments that methods of Pregel pass on."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypedDict

from perdure.cache.base import BaseCache
from perdure.checkpoint.base import BaseCheckpointSaver
from perdure.clock import Clock
from perdure.data import StreamMode


class GraphOptions(TypedDict, total=False):
    """The arguments of Pregel's constructor that do not go into its plan."""

    checkpointer: BaseCheckpointSaver | bool | None
    store: Any
    cache: BaseCache | None
    clock: Clock
    stream_mode: StreamMode
    step_timeout: float | timedelta | None
    interrupt_before_nodes: str | Sequence[str]
    interrupt_after_nodes: str | Sequence[str]
    context_schema: Any
    debug: bool
