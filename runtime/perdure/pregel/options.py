"""Keyword arguments that methods of Pregel pass on."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypedDict

from perdure.cache.base import BaseCache
from perdure.checkpoint.base import BaseCheckpointSaver
from perdure.clock import Clock
from perdure.data import Durability, StreamMode


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


class RunOptions(TypedDict, total=False):
    """The arguments of `ainvoke` that do not bear on the types of its other arguments, or of its result."""

    interrupt_before: Sequence[str] | None
    interrupt_after: Sequence[str] | None
    durability: Durability | None
    debug: bool | None


class BatchOptions(RunOptions, total=False):
    """The arguments of `ainvoke` that `abatch` passes on."""

    context: Any
    output_keys: str | Sequence[str] | None
