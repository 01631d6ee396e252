"""The attributes of a graph: they are read back as given, and reach its runs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from perdure.channels import LastValue
from perdure.constants import START
from perdure.data import CachePolicy, RetryPolicy
from perdure.graph.state import CompiledStateGraph, StateGraph
from perdure.pregel import NodeBuilder, Pregel
from perdure.pregel.work.running import running_task
from perdure.runtime import get_store
from perdure.testing.clock import FakeClock
from tests.unit.pregel.graphs import Log, chain, logs, thread
from tests.unit.pregel.savers import WatchedSaver

OFFERS: dict[str, Any] = {
    "checkpointer": False,
    "store": {"a": "store"},
    "cache": {"a": "cache"},
    "stream_mode": "custom",
    "step_timeout": timedelta(seconds=5),
    "interrupt_before_nodes": ["n"],
    "interrupt_after_nodes": "*",
    "context_schema": Log,
    "debug": True,
}


def made(**more: Any) -> Pregel:
    """Build a graph whose node `n` copies x to y."""
    return Pregel(
        nodes={"n": more.pop("node", NodeBuilder().subscribe_only("x").write_to("y"))},
        channels={"x": LastValue(int), "y": LastValue(int)},
        input_channels=more.pop("input_channels", "x"),
        output_channels=more.pop("output_channels", "y"),
        **more,
    )


@pytest.mark.parametrize("make", [made, lambda **offers: Pregel.from_plan(made().plan, **offers)])
def test_what_it_is_made_with_can_be_read_back(make: Any) -> None:
    graph = make(**OFFERS)

    assert {name: getattr(graph, name) for name in OFFERS} == OFFERS


def test_policies_can_be_read_back_as_several() -> None:
    retry, cache = RetryPolicy(max_attempts=2), CachePolicy(ttl=1)
    graph = made(retry_policy=retry, cache_policy=cache)

    assert (graph.retry_policy, graph.cache_policy) == ((retry,), cache)
    assert made(retry_policy=[retry, retry]).retry_policy == (retry, retry)


@pytest.mark.parametrize(("names", "read"), [("x", "x"), (["x"], ("x",))])
def test_channels_are_read_back_as_one_or_as_several(names: Any, read: Any) -> None:
    graph = made(input_channels=names, output_channels=names, stream_channels=names)

    assert tuple(graph.input_channels) == tuple(names)
    assert (graph.output_channels, graph.stream_channels) == (read, read)


def test_without_stream_channels_a_stream_shows_all() -> None:
    assert made().stream_channels == ("x", "y")


def test_nodes_and_triggers_can_be_looked_up() -> None:
    graph = made()

    assert list(graph.nodes) == ["n"]
    assert graph.trigger_to_nodes == {"x": ("n",)}
    assert {"x", "y"} <= graph.channels.keys()


def test_it_has_the_name_it_is_given() -> None:
    assert (made(name="mine").name, made().name) == ("mine", "LangGraph")


async def test_nodes_see_what_the_graph_offers() -> None:
    seen: list[Any] = []

    async def looks(given: int) -> None:
        task = running_task()
        assert task is not None
        scope = task.scope
        seen.append((get_store(), scope.cache, scope.debug, scope.clock))

    clock = FakeClock()
    node = NodeBuilder().subscribe_only("x").do(looks)
    await made(node=node, store="store", cache="cache", debug=True, clock=clock).ainvoke(1)
    await Pregel.from_plan(made(node=node).plan, store="own", clock=clock).ainvoke(1)

    assert seen == [("store", "cache", True, clock), ("own", None, False, clock)]


@pytest.mark.parametrize(
    ("mode", "events"), [("values", [{"x": 1}, {"x": 1, "y": 1}]), ("updates", [{"n": {"y": 1}}])]
)
async def test_a_stream_is_in_the_graphs_mode_unless_it_is_told(mode: Any, events: list[Any]) -> None:
    default = made() if mode == "values" else made(stream_mode=mode)

    assert [event async for event in default.astream(1)] == events
    assert [event async for event in made(stream_mode="custom").astream(1, stream_mode=mode)] == events


async def test_the_checkpointer_keeps_its_threads() -> None:
    graph = made(checkpointer=WatchedSaver())
    await graph.ainvoke(1, thread())

    assert (await graph.aget_state(thread())).values == {"x": 1, "y": 1}


# What a StateGraph compiles to


def test_a_state_graph_compiles_to_a_pregel_that_knows_what_it_was_made_from() -> None:
    builder = StateGraph(Log).add_node("a", logs("a")).add_edge(START, "a")
    graph = builder.compile()

    assert isinstance(graph, CompiledStateGraph)
    assert isinstance(graph, Pregel)
    assert graph.builder is builder


def test_a_compiled_state_graph_can_be_looked_at_in_the_same_way() -> None:
    graph = chain(["a"]).compile()

    assert list(graph.nodes) == [START, "a"]
    assert graph.trigger_to_nodes == {START: (START,), "branch:to:a": ("a",)}
    assert (graph.input_channels, graph.output_channels) == (START, ("log", "x", "y"))
    assert (graph.stream_channels, graph.stream_mode) == (("log", "x", "y"), "updates")
    assert graph.validate() is graph
