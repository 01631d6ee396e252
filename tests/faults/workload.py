"""The graph that is killed, and the process that runs it.

    python -m tests.faults.workload URL THREAD DURABILITY LOG [POINT SUBJECT NTH]

The first run on the thread is left alone; the second one is killed at the named point. Nodes append
what they do to the log, so that others can tell afterwards which bodies ran.
"""

from __future__ import annotations

import operator
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any, TypedDict, cast

import anyio

from perdure import START, Pregel, Send, StateGraph
from perdure.checkpoint.base import BaseCheckpointSaver
from perdure.data import Durability
from perdure.faults import FaultPoint
from perdure.testing.faults import fault, kill_process
from perdure_checkpointers.postgres import PostgresSaver

WIDTH = 6
NAME = "workload"


class State(TypedDict):
    run: int
    found: Annotated[list[str], operator.add]
    ranked: list[str]


class Item(TypedDict):
    run: int
    item: int


class Log:
    """A log that survives its writer: each line is one write to a descriptor opened for appending."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY)

    def note(self, run: int, body: str) -> None:
        os.write(self._descriptor, f"{run} {body}\n".encode())


def build(saver: BaseCheckpointSaver | None, log: Log, *, freeze: bool = False) -> Pregel:
    """Build a plan, a fan-out of WIDTH beside a slow sibling, a join, and two more supersteps."""

    async def plan(state: State) -> dict[str, Any]:
        log.note(state["run"], "plan")
        return {"found": [f"{state['run']}:plan"]}

    def scatter(state: State) -> list[Send | str]:
        items = [Send("work", {"run": state["run"], "item": item}) for item in range(WIDTH)]
        return [*items, "slow"]

    async def work(item: Item) -> dict[str, Any]:
        """Finish one sibling after the other, so that some results are sent while others run."""
        log.note(item["run"], f"work-{item['item']}")
        await anyio.sleep(0.02 * item["item"])
        return {"found": [f"{item['run']}:work-{item['item']}"]}

    async def slow(state: State) -> dict[str, Any]:
        """Finish long after the siblings are stored. A frozen process has unlimited time."""
        log.note(state["run"], "slow")
        if freeze and state["run"] == 2:
            print("frozen", flush=True)
            await anyio.sleep(5)
        await anyio.sleep(0.25)
        return {"found": [f"{state['run']}:slow"]}

    async def rank(state: State) -> dict[str, Any]:
        log.note(state["run"], "rank")
        return {"ranked": sorted(state["found"])}

    async def finish(state: State) -> dict[str, Any]:
        log.note(state["run"], "finish")
        return {"found": [f"{state['run']}:finish"]}

    builder = StateGraph(State)
    for node in (plan, work, slow, rank, finish):
        builder.add_node(cast(Any, node))
    builder.add_edge(START, "plan").add_conditional_edges("plan", scatter)
    builder.add_edge("slow", "rank").add_edge("rank", "finish")
    return builder.compile(saver, name=NAME)


BODIES = ["plan", *(f"work-{item}" for item in range(WIDTH)), "slow", "rank", "finish"]
SUPERSTEPS = [BODIES[:1], BODIES[1:-2], ["rank"], ["finish"]]


async def main(*arguments: str) -> None:
    url, thread, durability, path, *where = arguments
    config = {"configurable": {"thread_id": thread}}
    freeze = where == ["freeze"]
    async with PostgresSaver.from_conn_string(url) as saver:
        graph = build(saver, Log(path), freeze=freeze)
        await graph.ainvoke({"run": 1}, config, durability=cast(Durability, durability))
        armed: AbstractContextManager[None] = nullcontext()
        if where and not freeze:
            point, subject, nth = where
            armed = fault(cast(FaultPoint, point), kill_process, subject=subject or None, nth=int(nth))
        with armed:
            await graph.ainvoke({"run": 2}, config, durability=cast(Durability, durability))


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
