"""Cache keys: tasks with equal graph, node, code and input share a result, and no others."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import pytest

from perdure.constants import START
from perdure.data import CachePolicy
from perdure.graph.state import StateGraph
from perdure.pregel.graph import Pregel
from perdure.pregel.work.cache_key import PRIVATE_SECONDS
from tests.unit.pregel.caching import WatchedCache, cached
from tests.unit.pregel.graphs import Log, Runs, chain, logs


@pytest.fixture
def cache() -> WatchedCache:
    return WatchedCache()


class Numbers(TypedDict, total=False):
    n: Any
    x: Any


def graph_of(action: Any, cache: WatchedCache, **more: Any) -> Pregel:
    """Build a graph of one cached node."""
    return cached(StateGraph(Numbers).add_node("a", action).add_edge(START, "a"), cache, "a", **more)


def closure(by: Any) -> Callable[[Any], Any]:
    async def times(state: Numbers) -> Any:
        return {"x": [state["n"], by]}

    return times


async def times(by: Any, state: Numbers) -> Any:
    return {"x": [state["n"], by]}


def partial(by: Any) -> Callable[[Any], Any]:
    return functools.partial(times, by)


class Times:
    def __init__(self, by: Any) -> None:
        self.by = by

    async def __call__(self, state: Numbers) -> Any:
        return {"x": [state["n"], self.by]}

    async def method(self, state: Numbers) -> Any:
        return {"x": [state["n"], self.by]}


def method(by: Any) -> Callable[[Any], Any]:
    return Times(by).method


def default(by: Any) -> Callable[[Any], Any]:
    async def times(state: Numbers, by: Any = by) -> Any:
        return {"x": [state["n"], by]}

    return times


@pytest.mark.parametrize("make", [closure, partial, Times, method, default])
async def test_nodes_that_hold_different_things_share_no_entries(make: Any, cache: WatchedCache) -> None:
    values = [1, 2, 1.0, True, (1,), [1], "1", None]
    for _ in range(2):
        for by in values:
            result = await graph_of(make(by), cache).ainvoke({"n": 1})
            assert repr(result["x"]) == repr([1, by])
    assert len(cache.kept) == len(values)
    assert cache.ttls == [None] * len(values)


@pytest.mark.parametrize("given", [((1,), [1]), (1, True), (1, 1.0), ({1}, frozenset({1})), ("1", b"1")])
async def test_inputs_of_different_types_share_no_entries(given: Any, cache: WatchedCache) -> None:
    graph = graph_of(closure(0), cache)
    for _ in range(2):
        for n in given:
            assert repr((await graph.ainvoke({"n": n}))["x"]) == repr([n, 0])
    assert len(cache.kept) == 2


async def test_the_order_of_an_inputs_keys_does_not_count(cache: WatchedCache) -> None:
    graph = graph_of(closure(0), cache)
    for n in ({"a": 1, "b": (2,)}, {"b": (2,), "a": 1}):
        await graph.ainvoke({"n": n})
    assert len(cache.kept) == 1


async def test_nodes_of_one_name_in_two_graphs_share_no_entries(cache: WatchedCache) -> None:
    runs = Runs()
    action = runs.counted("a")
    more_nodes = chain(["a"], {"a": action}).add_node("b", logs("b"))

    for graph in (
        cached(chain(["a"], {"a": action}), cache, "a", name="one"),
        cached(chain(["a"], {"a": action}), cache, "a", name="two"),
        cached(more_nodes, cache, "a", name="one"),
        cached(chain(["a"], {"a": logs("other")}), cache, "a", name="one"),
    ):
        await graph.ainvoke({})
    assert len(cache.kept) == 4
    assert [keys[0][0] for keys in cache.kept] == [
        ("__pregel_ns_writes", "one", "a"),
        ("__pregel_ns_writes", "two", "a"),
        ("__pregel_ns_writes", "one", "a"),
        ("__pregel_ns_writes", "one", "a"),
    ]


async def test_two_nodes_with_one_action_share_no_entries(cache: WatchedCache) -> None:
    action = logs("same")
    await cached(chain(["a", "b"], {"a": action, "b": action}), cache, "a", "b").ainvoke({})
    assert [keys[0][0][-1] for keys in cache.kept] == ["a", "b"]


async def test_state_that_an_action_changed_is_part_of_the_next_key(cache: WatchedCache) -> None:
    class Counter:
        def __init__(self) -> None:
            self.calls = 0

        async def __call__(self, state: Any) -> Any:
            self.calls += 1
            return {"x": self.calls}

    graph = graph_of(Counter(), cache)
    assert [(await graph.ainvoke({"n": 0}))["x"] for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize(("ttl", "kept_for"), [(None, PRIVATE_SECONDS), (5, 5), (1e9, PRIVATE_SECONDS)])
async def test_what_only_this_process_can_use_is_kept_for_a_day_at_most(
    ttl: Any, kept_for: float, cache: WatchedCache
) -> None:
    client = threading.Event()

    async def a(state: Any) -> Any:
        return {"x": client.is_set()}

    graph = graph_of(a, cache, policy=CachePolicy(ttl=ttl))
    for _ in range(2):
        await graph.ainvoke({"n": 1})
    assert cache.ttls == [kept_for]


async def test_a_private_class_in_the_input_is_private_too(cache: WatchedCache) -> None:
    @dataclass
    class Local:
        n: int

    async def a(state: Any) -> Any:
        return {"x": 1}

    graph = graph_of(a, cache)
    for _ in range(2):
        await graph.ainvoke({"n": Local(1)})
    assert cache.ttls == [PRIVATE_SECONDS]


# Graphs as nodes


def child(step: int, name: str = "child", route: str = "c") -> Pregel:
    async def c(state: Numbers) -> Any:
        return {"x": state["n"] + step}

    async def d(state: Numbers) -> Any:
        return {"x": -1}

    builder = StateGraph(Numbers).add_node("c", c).add_node("d", d)
    builder.add_conditional_edges(START, lambda state: route, ["c", "d"])
    return builder.compile(name=name)


def below(graph: Pregel) -> list[Callable[[Any], Any]]:
    """Return the nodes that can be made of a graph."""

    async def call(state: Numbers) -> Any:
        return await graph.ainvoke(state)

    return [graph.ainvoke, call]


@pytest.mark.parametrize("way", [0, 1])
async def test_a_graph_can_be_a_cached_node_and_its_nodes_count(way: int, cache: WatchedCache) -> None:
    async def result(graph: Pregel) -> Any:
        return (await graph_of(below(graph)[way], cache).ainvoke({"n": 1}))["x"]

    assert [await result(child(step)) for step in (1, 2, 1, 2)] == [2, 3, 2, 3]
    assert len(cache.kept) == 2
    assert cache.ttls == [None, None]
    assert await result(child(1, route="d")) == -1
    await result(child(1, name="other"))
    assert len(cache.kept) == 4


async def test_nodes_of_a_graph_below_use_the_cache_of_the_run(cache: WatchedCache) -> None:
    runs = Runs()
    inner = cached(chain(["i"], {"i": runs.counted("i")}), None, "i", name="inner")

    async def call(state: Log) -> Any:
        return await inner.ainvoke({"x": state["x"]})

    outer = cached(chain(["o"], {"o": call}), cache, name="outer")
    for _ in range(2):
        await outer.ainvoke({"x": 1})
    assert runs.of == {"i": 1}
    assert [keys[0][0] for keys in cache.kept] == [("__pregel_ns_writes", "inner", "i")]
