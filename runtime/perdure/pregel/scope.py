"""What one run offers to its nodes, and hands down to the graphs below it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perdure.cache.base import BaseCache
from perdure.clock import SYSTEM_CLOCK, Clock
from perdure.config import RunSettings
from perdure.data import StreamWriter


def nobody_reads(event: Any) -> None:
    """The stream writer of a run whose custom events nobody reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """One object per run.

    Attributes:
        context: what the run was called with, as the graph's context schema has it.
        writer: where "custom" events go.
        random: draws from 0 up to 1, for what must not happen in step with others.
    """

    settings: RunSettings
    clock: Clock = SYSTEM_CLOCK
    context: Any = None
    store: Any = None
    cache: BaseCache | None = None
    writer: StreamWriter = nobody_reads
    debug: bool = False
    random: Callable[[], float]
