"""Only type-checked: what users write, and what their type checker should say of it."""

from __future__ import annotations

import operator
from collections.abc import AsyncIterator
from typing import Annotated, Any, TypedDict, assert_type

from perdure import (
    END,
    START,
    CachePolicy,
    Command,
    CompiledStateGraph,
    InMemoryCache,
    InMemorySaver,
    IsLastStep,
    NodeBuilder,
    NodeError,
    Pregel,
    Recovered,
    RemainingSteps,
    RetryPolicy,
    RunnableConfig,
    Runtime,
    Send,
    StateGraph,
    StateSnapshot,
    StreamWriter,
    TimeoutPolicy,
    default_retry_on,
    failures_of,
    get_config,
    get_runtime,
    get_stream_writer,
    recover,
)
from perdure.channels import LastValue
from perdure.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, LeasedSaver
from perdure.graph.drawing import Graph
from perdure.service.sweeper import Sweeper
from perdure_checkpointers.postgres import PostgresSaver


class State(TypedDict):
    x: int
    log: Annotated[list[str], operator.add]


async def updates(state: State) -> dict[str, int]:
    return {"x": state["x"] + 1}


def commands(state: State) -> Command:
    return Command(update={"x": 1}, goto=[Send("updates", {"x": 2}), END])


class Router:
    """As models and chains of other packages are run."""

    async def ainvoke(self, given: State, config: Any = None) -> str:
        return END


def build(saver: BaseCheckpointSaver | None) -> CompiledStateGraph:
    builder = StateGraph(State).add_node(updates).add_node("commands", commands)
    builder.add_edge(START, "commands").add_edge(["commands", "updates"], END)
    builder.add_conditional_edges("updates", lambda state: END, {"done": END})
    builder.add_conditional_edges("commands", Router(), ["updates", END])
    builder.add_conditional_edges("commands", 5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    builder.compile(strict=True, debug=True, renamed={"old": "updates"}, interrupt_before="*")
    return assert_type(builder.compile(saver, name="typed"), CompiledStateGraph[State, Any, State, State])


def assemble() -> Pregel:
    double = NodeBuilder().subscribe_only("x").do(lambda x: 2 * x).write_to("y", z=1)
    assert_type(double, NodeBuilder)
    channels = {"x": LastValue[int](int), "y": LastValue[int](int), "z": LastValue[int](int)}
    Pregel(nodes={"double": double}, channels=channels, input_channels=1, output_channels="y")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    return Pregel(nodes={"double": double}, channels=channels, input_channels="x", output_channels=["y"])


async def run(graph: Pregel) -> None:
    config: RunnableConfig = {"configurable": {"thread_id": "t"}, "recursion_limit": 5}
    assert_type(await graph.ainvoke({"x": 1}, config, durability="sync"), Any)
    assert_type(graph.astream(None, config, stream_mode=["values", "updates"]), AsyncIterator[Any])
    assert_type(await graph.aget_state(config), StateSnapshot)
    assert_type(await recover(graph), list[Recovered])
    await graph.ainvoke({"x": 1}, durability="sometimes")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    graph.astream({"x": 1}, stream_mode="everything")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def save(url: str) -> None:
    async with PostgresSaver.from_conn_string(url, max_size=4) as saver:
        assert_type(saver, PostgresSaver)
        leased: LeasedSaver = saver
        assert_type(await leased.aget_tuple({"configurable": {"thread_id": "t"}}), CheckpointTuple | None)
    build(InMemorySaver())


def sweep(graph: Pregel) -> None:
    async def job() -> list[Recovered]:
        return await recover(graph)

    Sweeper().register("recovery", job, every=15.0)


async def draw(graph: CompiledStateGraph) -> None:
    assert_type(graph.get_graph(xray=1), Graph)
    assert_type(await graph.aget_graph({"configurable": {}}, xray=True), Graph)
    assert_type(graph.get_graph().draw_mermaid(curve_style="basis"), str)
    assert_type(graph.get_graph().draw_png("graph.png"), bytes)


class Counted(TypedDict):
    x: int
    last: IsLastStep
    left: RemainingSteps


async def informed(state: Counted, runtime: Runtime[str], writer: StreamWriter) -> dict[str, int]:
    assert_type(state["last"], bool)
    assert_type(state["left"], int)
    assert_type(runtime.context, str)
    assert_type(get_runtime(str), Runtime[str])
    assert_type(get_config(), RunnableConfig)
    assert_type(get_stream_writer(), StreamWriter)
    writer({"x": state["x"]})
    return {"x": 1}


async def handles(state: Counted, error: NodeError) -> Command[str]:
    return Command(update={"log": [repr(each) for each in failures_of(error.error)]}, goto=error.node)


def with_policies() -> CompiledStateGraph:
    builder = StateGraph(Counted, str).add_node(
        informed,
        retry_policy=[RetryPolicy(retry_on=default_retry_on), RetryPolicy(retry_on=(OSError, ValueError))],
        cache_policy=CachePolicy(key_func=repr, ttl=3),
        timeout=TimeoutPolicy(idle_timeout=2, refresh_on="heartbeat"),
        error_handler=handles,
    )
    return builder.add_edge(START, "informed").compile(cache=InMemoryCache())
