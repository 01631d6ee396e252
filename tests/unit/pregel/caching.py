"""Graphs with cached nodes, caches that record their calls, and caches that do not answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import anyio

from perdure.cache.base import BaseCache, FullKey
from perdure.cache.memory import InMemoryCache
from perdure.clock import SYSTEM_CLOCK, Clock
from perdure.data import CachePolicy
from perdure.graph.state import StateGraph
from perdure.pregel.graph import Pregel
from perdure.pregel.plan.plan import Policies


class WatchedCache(InMemoryCache):
    """The in-memory cache under observation.

    Attributes:
        asked, kept: the keys of each look-up, and of each call that keeps results.
        ttls: the seconds for which each result is kept.
        before: awaited with "get" or "set" before the call is made.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(clock=clock)
        self.asked: list[list[FullKey]] = []
        self.kept: list[list[FullKey]] = []
        self.ttls: list[float | None] = []
        self.before: Callable[[str], Awaitable[None]] | None = None

    async def aget(self, keys: Sequence[FullKey]) -> dict[FullKey, bytes]:
        self.asked.append(list(keys))
        if self.before is not None:
            await self.before("get")
        return await super().aget(keys)

    async def aset(self, pairs: Mapping[FullKey, tuple[bytes, float | None]]) -> None:
        self.kept.append(list(pairs))
        self.ttls += [ttl for _, ttl in pairs.values()]
        if self.before is not None:
            await self.before("set")
        await super().aset(pairs)


def broken(what: str) -> Callable[[str], Awaitable[None]]:
    """Return a `before` that fails the calls of one kind."""

    async def before(kind: str) -> None:
        if kind == what:
            raise ConnectionError("nobody there")

    return before


def silent(what: str) -> Callable[[str], Awaitable[None]]:
    """Return a `before` that never answers the calls of one kind."""

    async def before(kind: str) -> None:
        if kind == what:
            await anyio.sleep_forever()

    return before


def cached(
    builder: StateGraph,
    cache: BaseCache | None,
    *nodes: str,
    policy: CachePolicy | None = None,
    name: str | None = None,
    **more: Any,
) -> Pregel:
    """Build the graph with the results of these nodes cached."""
    plan = builder.compile(name=name).plan
    policies = Policies(cache=policy or CachePolicy())
    specs = {
        key: replace(spec, policies=policies) if key in nodes else spec for key, spec in plan.nodes.items()
    }
    return Pregel.from_plan(replace(plan, nodes=specs), cache=cache, **more)
