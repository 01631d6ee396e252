"""The node cache in a run: looked up before a superstep, given what is new after it.

What is cached of a result is what the node itself wrote, and where it goes by its own word. Its edges
are the graph's, which may have changed; its conditional edges see the whole state, not only the
node's input: both are followed anew.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import anyio

from perdure.cache.base import BaseCache, FullKey
from perdure.constants import TASKS
from perdure.errors import UnserializableValueError
from perdure.pregel.plan.plan import Calling, Plan
from perdure.pregel.plan.warn_once import WarnOnce
from perdure.pregel.step.outcome import Finished, Outcome, Ran
from perdure.pregel.step.task import Task, Writes
from perdure.pregel.work.cache_key import KeylessError, Place, place_of
from perdure.pregel.work.runner import Runner
from perdure.pregel.work.running import Scope

logger = logging.getLogger("perdure")

CACHE_SECONDS: Final = 2.0
"""Seconds that a run waits for an answer of its cache, before it goes on without."""


def node_cache(plan: Plan, scope: Scope) -> NodeCache | None:
    """Return the cache of a run's nodes; None for most graphs, whose nodes are not cached."""
    return None if scope.cache is None or not plan.cached else NodeCache(plan, scope.cache)


class NodeCache:
    """The cache as one run of one graph sees it.

    It never fails the run, nor holds it up for long: what does not answer is not asked again by this run.
    """

    __slots__ = ("_cache", "_failed", "_missed", "_plan")

    def __init__(self, plan: Plan, cache: BaseCache) -> None:
        self._plan = plan
        self._cache = cache
        self._missed: dict[Task, Place] = {}
        self._failed = False

    async def run_tasks(self, runner: Runner, tasks: Sequence[Task]) -> Ran:
        """Run tasks, those whose result is known without their nodes, and keep the results of the others."""
        ran = await runner.run_tasks(await self.look_up(tasks))
        if ran.cut_short is None:
            await self.keep(ran.outcomes)
        return ran

    async def look_up(self, tasks: Sequence[Task]) -> list[Task]:
        """Return the tasks, each whose result is known replaced by one that writes that and runs no node."""
        self._missed = {} if self._failed else self._places(tasks)
        if not self._missed:
            return list(tasks)
        try:
            with anyio.fail_after(CACHE_SECONDS):
                found = await self._cache.aget([*{place.key: None for place in self._missed.values()}])
        except Exception as error:
            self._give_up("was not looked up in", error)
            return list(tasks)
        return [self._stand_in(task, found) for task in tasks]

    def _stand_in(self, task: Task, found: Mapping[FullKey, bytes]) -> Task:
        place = self._missed.get(task)
        writes = None if place is None else self._decoded(task, found.get(place.key))
        if writes is None:
            return task
        del self._missed[task]
        return _writing(task, writes)

    async def keep(self, outcomes: Sequence[Outcome]) -> None:
        """Give the cache the results of the tasks that ran, and did not fail."""
        pairs: dict[FullKey, tuple[bytes, float | None]] = {}
        for outcome in outcomes if self._missed else ():
            place = self._missed.get(outcome.task)
            payload = None if place is None else self._encoded(outcome)
            if place is not None and payload is not None:
                pairs[place.key] = (payload, place.ttl)
        self._missed = {}
        if not pairs:
            return
        try:
            with anyio.fail_after(CACHE_SECONDS):
                await self._cache.aset(pairs)
        except Exception as error:
            self._give_up("was not kept in", error)

    def _give_up(self, what: str, error: Exception) -> None:
        self._failed, self._missed = True, {}
        logger.warning(
            "A result of graph %r %s its cache, and this run goes on without one: %r",
            self._plan.name,
            what,
            error,
        )

    def _places(self, tasks: Sequence[Task]) -> dict[Task, Place]:
        """Return the places of the results of those tasks that can be cached."""
        places = {}
        for task in tasks:
            policy = self._plan.cached.get(task.name)
            if policy is not None and task.handles is None:
                try:
                    places[task] = place_of(self._plan, task, policy, self._cache.serde)
                except KeylessError as error:
                    _warn(self._plan, task, str(error))
        return places

    def _decoded(self, task: Task, payload: bytes | None) -> Writes | None:
        if payload is None:
            return None
        try:
            return [(name, value) for name, value in self._cache.serde.loads(payload)]
        except Exception as error:
            _warn(self._plan, task, f"what the cache had of it cannot be read: {error}")
            return None

    def _encoded(self, outcome: Outcome) -> bytes | None:
        """Return a task's result as the cache keeps it; None, with a warning, if it cannot."""
        writes = _own_writes(outcome)
        if writes is None:
            return None
        task = outcome.task
        serde, name = self._cache.serde, ""
        try:
            for name, value in writes:
                if name in self._plan.untracked:
                    raise UnserializableValueError("the key is one that is never stored")
                serde.dumps(value)
            return serde.dumps([list(write) for write in writes])
        except Exception as error:
            place = "a Send" if name == TASKS else f"state key {name!r}"
            _warn(self._plan, task, f"what it wrote to {place} cannot be kept: {error}")
            return None


def _writing(task: Task, writes: Writes) -> Task:
    """Return the task with only what comes after its action: of its policies, what its paths may need."""
    spec = replace(task.spec, calling=Calling.CACHED, injects=(), writer=lambda result: list(writes))
    return task._replace(spec=spec if spec.branches else replace(spec, policies=None))


def _own_writes(outcome: Outcome) -> Writes | None:
    """Return what the node itself wrote; None if it failed, or what the task wrote is not its own."""
    if not isinstance(outcome, Finished) or outcome.task.handles is not None:
        return None
    writes, edges = outcome.writes, outcome.task.spec.edges
    start_of_edges = outcome.routed - len(edges)
    if start_of_edges < 0 or tuple(writes[start_of_edges : outcome.routed]) != edges:
        return None
    return writes[:start_of_edges]


_warned = WarnOnce()


def _warn(plan: Plan, task: Task, why: str) -> None:
    """Warn one time for each graph, node and reason: what cannot be cached cannot be every time."""
    if _warned.is_new(plan, task.name, why.partition(":")[0]):
        logger.warning("A result of node %r of graph %r is not cached: %s", task.name, plan.name, why)
