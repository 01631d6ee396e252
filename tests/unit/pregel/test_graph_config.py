"""The config of a run: of the call, of the bound graph, of the surrounding run."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from perdure.channels.base import BaseChannel
from perdure.clock import SYSTEM_CLOCK
from perdure.config import RunnableConfig
from perdure.constants import START
from perdure.errors import GraphValidationError, InvalidUpdateError, MissingThreadError, ThreadBusyError
from perdure.graph.state import StateGraph
from perdure.pregel.graph import Pregel
from perdure.runtime import Runtime, get_config, get_runtime
from perdure.testing import FakeClock
from tests.unit.pregel.graphs import Log, chain, fails, logs, thread
from tests.unit.pregel.savers import WatchedSaver


class Look:
    """A node that keeps the configs and runtimes with which it runs."""

    def __init__(self) -> None:
        self.configs: list[Any] = []
        self.runtimes: list[Runtime[Any]] = []

    async def __call__(self, state: Log) -> Any:
        self.configs.append(get_config())
        self.runtimes.append(get_runtime())

    def graph(self, **more: Any) -> Pregel:
        return StateGraph(Log).add_node("look", self).add_edge(START, "look").compile(**more)


# with_config


async def test_a_bound_config_holds_where_the_call_says_nothing() -> None:
    look = Look()
    bound = look.graph().with_config(
        {
            "tags": ["bound", "both"],
            "metadata": {"a": "bound", "b": "bound"},
            "configurable": {"k": "bound", "l": "bound"},
            "recursion_limit": 5,
            "callbacks": ["bound"],
        }
    )
    await bound.ainvoke(
        {},
        {
            "tags": ["call", "both"],
            "metadata": {"b": "call"},
            "configurable": {"l": "call"},
            "recursion_limit": 10_007,
            "callbacks": ["call"],
        },
    )
    await bound.ainvoke({})

    with_call, without = look.configs
    assert with_call["tags"] == ["bound", "both", "call"]
    assert {k: with_call["metadata"][k] for k in "ab"} == {"a": "bound", "b": "call"}
    assert {k: with_call["configurable"][k] for k in "kl"} == {"k": "bound", "l": "call"}
    assert with_call["recursion_limit"] == 10_007, "what equals the default is said as well"
    assert with_call["callbacks"] == ["bound", "call"]
    assert without["recursion_limit"] == 5
    assert without["tags"] == ["bound", "both"]


async def test_binding_again_adds_to_what_was_bound_and_leaves_the_graph_as_it_was() -> None:
    look = Look()
    graph = look.graph(name="named")
    once = graph.with_config({"tags": ["one"]}, recursion_limit=3)
    twice = once.with_config({"tags": ["two"]}, user="me")
    for each in (graph, once, twice):
        await each.ainvoke({})

    assert [config["tags"] for config in look.configs] == [[], ["one"], ["one", "two"]]
    assert look.configs[2]["recursion_limit"] == 3
    assert look.configs[2]["configurable"]["user"] == "me"
    assert "user" not in look.configs[1]["configurable"]
    assert (graph.config, twice.name, twice.plan) == (None, "named", graph.plan)


async def test_a_thread_may_be_bound() -> None:
    graph = chain(["a"]).compile(checkpointer=WatchedSaver()).with_config(thread())
    await graph.ainvoke({})

    assert await graph.ainvoke({}) == {"log": ["a", "a"]}
    assert [event async for event in graph.astream({}, stream_mode="values")][-1] == {"log": ["a"] * 3}
    assert (await graph.aget_state({})).values == {"log": ["a"] * 3}


async def test_a_bound_config_counts_more_than_the_surrounding_runs() -> None:
    look = Look()
    bound = look.graph().with_config({"metadata": {"m": "bound"}, "configurable": {"k": "bound"}})

    async def call(state: Log) -> Any:
        await bound.ainvoke({})
        await bound.ainvoke({}, {"metadata": {"m": "call"}})

    graph = StateGraph(Log).add_node("a", call).add_edge(START, "a").compile()
    await graph.ainvoke({}, {"metadata": {"m": "outer", "n": "outer"}, "configurable": {"k": "outer"}})

    assert [(c["metadata"]["m"], c["metadata"]["n"]) for c in look.configs] == [
        ("bound", "outer"),
        ("call", "outer"),
    ]
    assert [c["configurable"]["k"] for c in look.configs] == ["bound", "bound"]


# What a graph below a node takes over


async def below(call: Any, config: Any, saver: Any = None, **options: Any) -> Any:
    """Run `call` as the node "outer", whose metadata is {"owner": "me"}."""
    builder = StateGraph(Log).add_node("outer", call, metadata={"owner": "me"}).add_edge(START, "outer")
    graph = builder.compile(checkpointer=saver).copy({"store": "the store", "cache": "the cache"})
    return await graph.ainvoke({}, config, **options)


@pytest.mark.parametrize("saved", [True, False], ids=["saved", "not saved"])
async def test_a_nodes_own_config_means_the_same_as_none(saved: bool) -> None:
    look = Look()
    child = look.graph()
    saver = WatchedSaver() if saved else None

    async def call(state: Log, config: RunnableConfig) -> None:
        await child.ainvoke({})
        await child.ainvoke({}, config)
        await child.ainvoke({}, {**config})

    config = {"configurable": {"thread_id": "t", "k": 1}, "tags": ["t"], "metadata": {"m": 1}, "run_id": "r"}
    await below(call, {**config, "recursion_limit": 9, "max_concurrency": 2, "callbacks": ["c"]}, saver)

    def told(config: Any) -> Any:
        """Return the config without the keys that name its task."""
        namespace = config["configurable"].pop("checkpoint_ns")
        assert config["metadata"].pop("langgraph_checkpoint_ns") == namespace
        return namespace.split("|")[1].isdigit(), config

    [(first, left_out), (_, passed_on), (_, copied)] = [told(config) for config in look.configs]
    assert not first
    assert left_out == passed_on == copied
    assert left_out["tags"] == ["t"]
    assert (left_out["metadata"]["m"], left_out["metadata"]["owner"]) == (1, "me")
    assert (left_out["recursion_limit"], left_out["max_concurrency"], left_out["callbacks"]) == (9, 2, ["c"])
    assert left_out["configurable"] == {"thread_id": "t", "k": 1}
    assert (
        len({runtime.execution_info and runtime.execution_info.checkpoint_ns for runtime in look.runtimes})
        == 3
    )
    if saver is not None:
        assert len(saver.claims) == 1
        stored = {row.ns: row.metadata for commit in saver.sent for row in commit.checkpoints if row.ns}
        assert len(stored) == 3
        assert all(row["m"] == 1 and row["owner"] == "me" for row in stored.values())
        assert not any(key.startswith("langgraph_") for row in stored.values() for key in row)


async def test_what_a_node_adds_to_its_config_is_taken_over() -> None:
    look = Look()

    async def call(state: Log, config: RunnableConfig) -> None:
        more: Any = {**config, "tags": [*config["tags"], "more"], "recursion_limit": 4}
        more["configurable"] = {**config["configurable"], "k": 2}
        await look.graph().ainvoke({}, more)

    await below(call, {**thread(), "tags": ["t"]}, WatchedSaver())

    [config] = look.configs
    assert (config["tags"], config["recursion_limit"], config["configurable"]["k"]) == (["t", "more"], 4, 2)


async def test_a_nodes_config_with_another_thread_means_that_thread() -> None:
    look, saver = Look(), WatchedSaver()

    async def call(state: Log, config: RunnableConfig) -> None:
        elsewhere = {**config["configurable"], "thread_id": "other"}
        await look.graph().ainvoke({}, {"configurable": elsewhere})

    await below(call, thread(), saver)

    assert [claim.thread_id for claim in saver.claims] == ["t", "other"]
    assert look.configs[0]["configurable"]["thread_id"] == "other"


async def test_the_nodes_own_thread_written_by_hand_is_refused() -> None:
    async def call(state: Log, config: RunnableConfig) -> None:
        await Look().graph().ainvoke({}, {"configurable": {"thread_id": config["configurable"]["thread_id"]}})

    with pytest.raises(ThreadBusyError, match="Node 'outer' invokes a graph on thread 't', on which it runs"):
        await below(call, thread(), WatchedSaver())


async def test_an_address_leaves_the_surrounding_configurable_behind() -> None:
    look = Look()

    async def call(state: Log) -> None:
        await look.graph().ainvoke({}, {"configurable": {"thread_id": "other", "l": 1}})

    await below(call, {"configurable": {"thread_id": "t", "k": 1}, "tags": ["t"]}, WatchedSaver())

    [config] = look.configs
    assert "k" not in config["configurable"]
    assert config["configurable"]["l"] == 1
    assert config["tags"] == ["t"], "what is not configurable is taken over nevertheless"


@pytest.mark.parametrize("passed", [True, False])
async def test_a_graph_with_a_saver_below_a_run_without_one_keeps_the_thread_of_that_run(
    passed: bool,
) -> None:
    saver = WatchedSaver()
    child = chain(["c"]).compile(checkpointer=saver)

    async def call(state: Log, config: RunnableConfig) -> None:
        await child.ainvoke({}, config if passed else None)

    await below(call, thread())

    assert [claim.thread_id for claim in saver.claims] == ["t"]
    assert (await child.aget_state(thread())).values == {"log": ["c"]}
    with pytest.raises(MissingThreadError):
        await below(call, {})


async def test_context_store_and_cache_are_those_of_the_surrounding_run() -> None:
    look = Look()
    child = look.graph().copy({"store": "its own"})

    async def call(state: Log) -> None:
        await child.ainvoke({})
        await child.ainvoke({}, context="another")

    await below(call, {}, context="the context")
    await child.ainvoke({})

    assert [(runtime.context, runtime.store) for runtime in look.runtimes] == [
        ("the context", "the store"),
        ("another", "the store"),
        (None, "its own"),
    ]


async def test_the_clock_is_that_of_the_surrounding_run() -> None:
    clocks: list[Any] = []
    inner = chain(["c"]).compile()

    async def call(state: Log) -> Any:
        request = inner._request({}, None, None, None, None)
        clocks.append(request.scope.clock)

    clock = FakeClock()
    await StateGraph(Log).add_node("a", call).add_edge(START, "a").compile(clock=clock).ainvoke({})

    assert clocks == [clock]
    assert inner._request({}, None, None, None, None).scope.clock is SYSTEM_CLOCK


# abatch


async def test_every_input_has_its_output_in_its_place() -> None:
    async def add(state: Log) -> Any:
        return {"x": state["x"] + 1}

    graph = StateGraph(Log).add_node("a", add).add_edge(START, "a").compile()

    outputs = await graph.abatch([{"x": n} for n in range(5)])
    assert [output["x"] for output in outputs] == [1, 2, 3, 4, 5]
    assert await graph.abatch([{"x": 1}, {"x": 2}], output_keys="x") == [2, 3]
    assert await graph.abatch([]) == []


async def test_one_config_is_for_all_and_a_list_has_one_for_each() -> None:
    look, saver = Look(), WatchedSaver()
    graph = look.graph(checkpointer=saver)
    await graph.abatch([{"x": 1}, {"x": 2}], [thread("one"), thread("two")])
    await look.graph().abatch([{}, {}], {"tags": ["t"]})

    assert sorted(claim.thread_id for claim in saver.claims) == ["one", "two"]
    assert (await graph.aget_state(thread("two"))).values["x"] == 2
    assert [config["tags"] for config in look.configs[2:]] == [["t"], ["t"]]
    with pytest.raises(
        GraphValidationError, match="There are 2 inputs, but 1 configs: give one for all, or one"
    ):
        await graph.abatch([{}, {}], [thread()])


@pytest.mark.parametrize("bound", [True, False])
async def test_the_configs_max_concurrency_bounds_how_many_run_at_once(bound: bool) -> None:
    running, most = 0, 0

    async def count(state: Log) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        running -= 1

    graph = StateGraph(Log).add_node("a", count).add_edge(START, "a").compile()
    config: RunnableConfig = {"max_concurrency": 2}
    if bound:
        await graph.with_config(config).abatch([{}] * 6)
    else:
        await graph.abatch([{}] * 6, config)
    assert most == 2

    await graph.abatch([{}] * 6)
    assert most == 6


async def test_errors_are_raised_or_returned_in_their_places() -> None:
    error = ValueError("boom")

    async def fail_at_one(state: Log) -> None:
        if state["x"] == 1:
            raise error

    graph = StateGraph(Log).add_node("a", fail_at_one).add_edge(START, "a").compile()
    inputs = [{"x": 0}, {"x": 1}, {"x": 2}]
    with pytest.raises(ValueError, match="boom"):
        await graph.abatch(inputs)

    assert await graph.abatch(inputs, return_exceptions=True, output_keys="x") == [0, error, 2]
    kept = await graph.abatch([5, {"x": 2}], return_exceptions=True, output_keys="x")  # type: ignore[list-item]
    assert isinstance(kept[0], InvalidUpdateError)
    assert kept[1] == 2


async def test_a_batch_below_a_node_keeps_every_graph_in_a_namespace_of_its_own() -> None:
    saver, broken = WatchedSaver(), [ValueError("boom")]
    child = chain(["c"]).compile()

    async def call(state: Log) -> Any:
        outputs = await child.abatch([{"x": n} for n in range(4)], {"max_concurrency": 2})
        if broken:
            raise broken.pop()
        return {"y": [output["x"] for output in outputs]}

    graph = StateGraph(Log).add_node("a", call).add_edge(START, "a").compile(checkpointer=saver)
    with pytest.raises(ValueError, match="boom"):
        await graph.ainvoke({}, thread())

    assert (await graph.ainvoke(None, thread()))["y"] == [0, 1, 2, 3]
    namespaces = {row.ns for commit in saver.sent for row in commit.checkpoints if row.ns}
    assert sorted(ns.partition("|")[2] for ns in namespaces) == ["", "1", "2", "3"]


# copy and attributes


def test_a_copy_differs_in_what_it_is_told() -> None:
    graph, saver = chain(["a"]).compile(), WatchedSaver()
    copied = graph.copy({"checkpointer": saver, "store": "s"})

    assert (copied.checkpointer, copied.store) == (saver, "s")
    assert (graph.checkpointer, graph.store) == (None, None)
    assert copied.plan is graph.copy().plan is graph.plan
    with pytest.raises(GraphValidationError, match=r"no attribute 'stor' that .* Did you mean 'store'\?"):
        graph.copy({"stor": 1})


def test_a_graph_tells_what_it_is_made_of() -> None:
    builder = StateGraph(Log).add_node("a", logs("a")).add_edge(START, "a").add_node("b", fails(ValueError()))
    graph = builder.compile(name="named")

    assert list(graph.nodes) == [START, "a", "b"]
    assert {type(channel).__mro__[1] for channel in graph.channels.values()} >= {BaseChannel}
    assert graph.input_channels == START
    assert graph.output_channels == ("log", "x", "y")
    assert graph.stream_channels == ("log", "x", "y")
    assert graph.trigger_to_nodes["branch:to:a"] == ("a",)
    assert graph.stream_mode == "updates"
    assert graph.get_name() == graph.name == "named"
    assert graph.builder is builder
    assert graph.config is None
