"""What one run offers to its nodes, and hands down to the graphs below it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perdure.cache.base import BaseCache
from perdure.clock import SYSTEM_CLOCK, Clock
from perdure.config import RunSettings
from perdure.data import StreamWriter
from perdure.pregel.work.time_limits import Watch


def nobody_reads(event: Any) -> None:
    """The stream writer of a run whose custom events nobody reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """One object per run.

    Attributes:
        context: what the run was called with, as the graph's context schema has it.
        writer: where "custom" events go.
        above: the task whose node the run was called in; None for one that no node called.
        loop: the event loop that the run goes on in.
        debug: whether each superstep is printed and watched for changes in place.
        random: draws from 0 up to 1, for what must not happen in step with others.
        watch: that of the nearest attempt around the run which has a time limit.
        step_timeout: how many seconds a superstep may take.
    """

    settings: RunSettings
    clock: Clock = SYSTEM_CLOCK
    context: Any = None
    store: Any = None
    cache: BaseCache | None = None
    writer: StreamWriter = nobody_reads
    debug: bool = False
    loop: Any = None
    above: Any = None
    random: Callable[[], float]
    watch: Watch | None = None
    step_timeout: float | None = None
