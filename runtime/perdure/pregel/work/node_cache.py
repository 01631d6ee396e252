"""The node cache in a run: it is read before a superstep, and receives new results after it.

It holds the node's own writes, among them the destinations that the node itself named. Edges are followed
anew: static edges because they belong to the graph, which may have changed; conditional edges because they
see the whole state, not only the node's input.
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
from perdure.pregel.work.cache_key import CachePlace, KeylessError, place_of
from perdure.pregel.work.runner import Runner
from perdure.pregel.work.running import Scope

logger = logging.getLogger("perdure")

CACHE_SECONDS: Final = 2.0
"""Seconds for which a run waits for its cache, before it goes on without it."""


def node_cache(plan: Plan, scope: Scope) -> NodeCache | None:
    """Return the cache of a run's nodes; None if no node is cached."""
    return None if scope.cache is None or not plan.cached else NodeCache(plan, scope.cache)


class NodeCache:
    """The cache as one run of one graph uses it.

    A cache never fails the run, and delays it by CACHE_SECONDS at most: after an error, or without an answer,
    the run does not ask again.
    """

    __slots__ = ("_cache", "_failed", "_missed", "_plan")

    def __init__(self, plan: Plan, cache: BaseCache) -> None:
        self._plan = plan
        self._cache = cache
        self._missed: dict[Task, CachePlace] = {}
        self._failed = False

    async def run_tasks(self, runner: Runner, tasks: Sequence[Task]) -> Ran:
        """Run tasks, without their nodes where the result is known. `keep` the other results afterwards."""
        return await runner.run_tasks(await self.look_up(tasks))

    async def look_up(self, tasks: Sequence[Task]) -> list[Task]:
        """Return the tasks. One whose result is cached is replaced by a task that only writes the result."""
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
        """Give the cache the results of the tasks that ran their nodes and finished."""
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
            "A result of graph %r %s its cache. This run goes on without the cache: %r",
            self._plan.name,
            what,
            error,
        )

    def _places(self, tasks: Sequence[Task]) -> dict[Task, CachePlace]:
        """Return the places of the results of the tasks that can be cached."""
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
            _warn(self._plan, task, f"its entry in the cache cannot be read: {error}")
            return None

    def _encoded(self, outcome: Outcome) -> bytes | None:
        """Return a task's result as the cache keeps it; None with a warning if it cannot be kept."""
        writes = _own_writes(outcome)
        if writes is None:
            return None
        task = outcome.task
        serde, name = self._cache.serde, ""
        try:
            for name, value in writes:
                if name in self._plan.untracked:
                    raise UnserializableValueError("the key is never stored (UntrackedValue)")
                serde.dumps(value)
            return serde.dumps([list(write) for write in writes])
        except Exception as error:
            place = "a Send" if name == TASKS else f"state key {name!r}"
            _warn(self._plan, task, f"its write to {place} cannot be stored: {error}")
            return None


def _writing(task: Task, writes: Writes) -> Task:
    """Return a task that writes a cached result. It keeps the policies only if its paths may need them."""
    spec = replace(task.spec, calling=Calling.CACHED, injects=(), writer=lambda result: list(writes))
    return task._replace(spec=spec if spec.branches else replace(spec, policies=None))


def _own_writes(outcome: Outcome) -> Writes | None:
    """Return the node's own writes; None if they are not known, or another node made them.

    They are the writes before the static edges, which precede those of conditional edges.
    """
    if not isinstance(outcome, Finished) or outcome.task.handles is not None:
        return None
    writes, edges = outcome.writes, outcome.task.spec.edges
    start_of_edges = outcome.routed - len(edges)
    if start_of_edges < 0 or tuple(writes[start_of_edges : outcome.routed]) != edges:
        return None
    return writes[:start_of_edges]


_warned = WarnOnce()


def _warn(plan: Plan, task: Task, why: str) -> None:
    """Warn that a result is not cached: once for each graph, node and reason, which mostly recurs."""
    if _warned.is_new(plan, task.name, why.partition(":")[0]):
        logger.warning("A result of node %r of graph %r is not cached: %s", task.name, plan.name, why)
