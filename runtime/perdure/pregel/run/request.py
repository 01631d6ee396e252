"""A run as asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from perdure.checkpoint.base import BaseCheckpointSaver, Orphan
from perdure.clock import Clock
from perdure.config import RunSettings
from perdure.data import Durability
from perdure.pregel.events.sink import Events
from perdure.pregel.plan.plan import Plan
from perdure.pregel.run.breakpoints import Breakpoints
from perdure.pregel.work.scope import Scope


@dataclass(slots=True, kw_only=True)
class RunRequest:
    """What run, of which graph, on what.

    Attributes:
        input: None continues what is stored.
        saver: None stores nothing, unless a surrounding run does; False stores nothing at all.
        orphan: given when this run continues one whose process is gone.
    """

    plan: Plan
    input: Any
    scope: Scope
    saver: BaseCheckpointSaver | bool | None
    durability: Durability
    output_keys: str | Sequence[str]
    events: Events | None = None
    breakpoints: Breakpoints | None = None
    orphan: Orphan | None = None

    @property
    def settings(self) -> RunSettings:
        return self.scope.settings

    @property
    def clock(self) -> Clock:
        return self.scope.clock

    def with_settings(self, settings: RunSettings) -> RunRequest:
        """The same run, differently configured."""
        return replace(self, scope=replace(self.scope, settings=settings))
