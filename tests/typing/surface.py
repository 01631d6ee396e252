"""Only type-checked: what users write, and what their type checker should say of it."""

from __future__ import annotations

import operator
from collections.abc import AsyncIterator
from typing import Annotated, Any, TypedDict, assert_type

from perdure import (
    END,
    START,
    Command,
    InMemorySaver,
    Pregel,
    Recovered,
    Send,
    StateGraph,
    StateSnapshot,
    recover,
)
from perdure.channels import LastValue
from perdure.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, LeasedSaver
from perdure.config import RunnableConfig
from perdure.graph.drawing import Graph
from perdure.graph.state import CompiledStateGraph
from perdure.pregel import NodeBuilder
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
    builder.add_conditional_edges("commands", 5)  # type: ignore[arg-type]
    builder.compile(strict=True, debug=True, renamed={"old": "updates"}, interrupt_before="*")
    return assert_type(builder.compile(saver, name="typed"), CompiledStateGraph)


def assemble() -> Pregel:
    double = NodeBuilder().subscribe_only("x").do(lambda x: 2 * x).write_to("y", z=1)
    assert_type(double, NodeBuilder)
    channels = {"x": LastValue[int](int), "y": LastValue[int](int), "z": LastValue[int](int)}
    Pregel(nodes={"double": double}, channels=channels, input_channels=1, output_channels="y")  # type: ignore[arg-type]
    return Pregel(nodes={"double": double}, channels=channels, input_channels="x", output_channels=["y"])


async def run(graph: Pregel) -> None:
    config: RunnableConfig = {"configurable": {"thread_id": "t"}, "recursion_limit": 5}
    assert_type(await graph.ainvoke({"x": 1}, config, durability="sync"), Any)
    assert_type(graph.astream(None, config, stream_mode=["values", "updates"]), AsyncIterator[Any])
    assert_type(await graph.aget_state(config), StateSnapshot)
    assert_type(await recover(graph), list[Recovered])
    await graph.ainvoke({"x": 1}, durability="sometimes")  # type: ignore[arg-type]
    graph.astream({"x": 1}, stream_mode="everything")  # type: ignore[arg-type]


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
