"""One run, as everything in it shares it."""

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
    """One run of one graph. Every call makes one, and a named tuple takes a quarter of a dataclass's time.

    Attributes:
        scope: everything that it offers to its nodes and hands down to child graphs.
        ids: the source of its checkpoint ids.
        output: the state keys that its caller gets.
        breakpoints: where it stops on purpose; None: nowhere.
        root: whether it holds its thread's claim, and so ends it.
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
