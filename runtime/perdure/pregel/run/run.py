"""Run: the values that everything in one run shares."""

from __future__ import annotations

from typing import NamedTuple

from perdure.clock import Clock, IdSource
from perdure.config import RunSettings
from perdure.pregel.events.sink import Sink
from perdure.pregel.lease.session import Session
from perdure.pregel.plan.plan import Plan
from perdure.pregel.run.breakpoints import Breakpoints
from perdure.pregel.step.namespace import Namespace
from perdure.pregel.step.output import Output
from perdure.pregel.work.running import Scope


class Run(NamedTuple):
    """One run of one graph. Nothing of it changes while it goes on; what changes is in its Loop.

    A named tuple, because every call makes one: a frozen dataclass takes about three times as long.

    Attributes:
        scope: everything that the run offers to its nodes and hands down to child graphs.
        ids: the source of checkpoint ids.
        output: the state keys that the caller gets.
        breakpoints: the places where the run stops on purpose.
        root: True if the run holds the claim of its thread, and so records the end and releases the claim.
    """

    plan: Plan
    scope: Scope
    ids: IdSource
    namespace: Namespace
    output: Output
    breakpoints: Breakpoints | None
    root: bool

    @property
    def settings(self) -> RunSettings:
        return self.scope.settings

    @property
    def session(self) -> Session | None:
        return self.scope.session

    @property
    def clock(self) -> Clock:
        return self.scope.clock

    @property
    def sink(self) -> Sink | None:
        return self.scope.sink
