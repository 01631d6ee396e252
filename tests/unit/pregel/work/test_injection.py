"""Injected values: a node receives those that it asks for, and they say where it runs."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.config import RunnableConfig
from perdure.constants import START
from perdure.data import NodeError, Send, StreamWriter
from perdure.graph.state import StateGraph
from perdure.pregel.graph import Pregel
from perdure.runtime import Runtime, get_config, get_runtime
from tests.unit.pregel.graphs import Log, returns, thread
from tests.unit.pregel.savers import WatchedSaver


def only(action: Any, **more: Any) -> Pregel:
    return StateGraph(Log).add_node("a", action, **more).add_edge(START, "a").compile()


async def test_a_plain_node_asks_for_nothing() -> None:
    assert only(returns(None)).plan.nodes["a"].injects == ()


@pytest.mark.parametrize("sync", [True, False])
async def test_a_node_is_given_all_that_it_asks_for(sync: bool) -> None:
    seen: dict[str, Any] = {}

    def asks(
        state: Log,
        config: RunnableConfig,
        writer: StreamWriter,
        *,
        store: Any,
        previous: Any,
        runtime: Runtime[Any],
        error: NodeError | None = None,
    ) -> None:
        seen.update(locals())

    async def asks_async(
        state: Log, config: RunnableConfig, writer: StreamWriter, store: Any, runtime: Runtime[Any]
    ) -> None:
        seen.update(locals())

    graph = only(asks if sync else asks_async, metadata={"owner": "me"}).copy({"store": "the store"})
    await graph.ainvoke({"x": 1}, {"configurable": {"user": "u"}, "tags": ["t"]}, context="the context")

    assert seen["state"]["x"] == 1
    assert seen["config"]["configurable"]["user"] == "u"
    assert seen["config"]["metadata"]["owner"] == "me"
    assert seen["config"]["tags"] == ["t"]
    assert seen["store"] == seen["runtime"].store == "the store"
    assert seen["runtime"].context == "the context"
    assert seen["writer"] == seen["runtime"].stream_writer
    assert seen["previous"] is None if sync else "previous" not in seen
    assert seen.get("error") is None


async def test_a_writer_and_a_config_are_given_to_a_node_that_was_sent_to() -> None:
    async def sent(number: Any, writer: StreamWriter, config: RunnableConfig) -> None:
        writer((number, config["metadata"]["langgraph_path"]))

    builder = StateGraph(Log).add_node("a", returns([Send("b", 1), Send("b", 2)])).add_node("b", sent)
    graph = builder.add_edge(START, "a").compile()

    events = [event async for event in graph.astream({}, stream_mode="custom")]
    assert events == [(1, ("__pregel_push", 0)), (2, ("__pregel_push", 1))]


async def test_the_config_says_where_the_node_runs() -> None:
    configs: list[Any] = []

    async def look(state: Log, config: RunnableConfig, runtime: Runtime[Any]) -> None:
        configs.append(config)
        assert get_config() == config
        assert get_runtime() == runtime
        assert runtime.execution_info is not None
        assert config["configurable"]["checkpoint_ns"] == runtime.execution_info.checkpoint_ns

    graph = only(look, metadata={"owner": "me", "langgraph_step": "mine"})
    given = {
        "recursion_limit": 7,
        "max_concurrency": 3,
        "run_id": "r",
        "callbacks": ["c"],
        "metadata": {"k": 1},
    }
    given["callbacks"] = ["c"]
    await graph.ainvoke({}, {**given, "configurable": {"thread_id": "t"}})

    [config] = configs
    namespace = config["configurable"]["checkpoint_ns"]
    assert namespace.startswith("a:")
    assert config == {
        "configurable": {"thread_id": "t", "checkpoint_ns": namespace},
        "recursion_limit": 7,
        "max_concurrency": 3,
        "tags": [],
        "metadata": {
            "k": 1,
            "langgraph_step": "mine",
            "langgraph_node": "a",
            "langgraph_triggers": ("branch:to:a",),
            "langgraph_path": ("__pregel_pull", "a"),
            "langgraph_checkpoint_ns": namespace,
            "owner": "me",
        },
        "run_name": "a",
        "run_id": "r",
        "callbacks": ["c"],
    }


async def test_the_runtime_says_which_task_of_which_run_it_belongs_to() -> None:
    seen: list[Runtime[Any]] = []

    async def look(state: Log, runtime: Runtime[Any]) -> None:
        seen.append(runtime)

    async def call(state: Log, runtime: Runtime[Any]) -> None:
        seen.append(runtime)
        await only(look).ainvoke({})

    builder = StateGraph(Log).add_node("call", call).add_edge(START, "call")
    saver = WatchedSaver()
    user = {"assistant_id": "as", "graph_id": "g", "langgraph_auth_user": "u"}
    await builder.compile(checkpointer=saver).ainvoke(
        {}, {"configurable": {"thread_id": "t", **user}, "run_id": "r"}
    )
    await builder.compile().ainvoke({})

    [above, below, *unsaved] = [runtime.execution_info for runtime in seen]
    assert above is not None
    assert below is not None
    assert (above.thread_id, above.run_id, above.node_attempt) == ("t", "r", 1)
    assert above.checkpoint_ns == f"call:{above.task_id}"
    assert below.thread_id == "t"
    assert below.checkpoint_ns == f"{above.checkpoint_ns}|a:{below.task_id}"
    assert above.checkpoint_id in {row.checkpoint_id for commit in saver.sent for row in commit.checkpoints}
    assert [info and info.thread_id for info in unsaved] == [None, None]
    assert [info and info.checkpoint_ns.count("|") for info in unsaved] == [0, 1]
    assert [r.server_info and r.server_info.user for r in seen] == ["u", "u", None, None]


async def test_thread_ids_are_texts() -> None:
    seen: list[Any] = []

    async def look(state: Log, runtime: Runtime[Any]) -> None:
        seen.append(runtime.execution_info)

    builder = StateGraph(Log).add_node("a", look).add_edge(START, "a")
    await builder.compile(checkpointer=WatchedSaver()).ainvoke({}, thread(7))  # type: ignore[arg-type]

    assert seen[0].thread_id == "7"
