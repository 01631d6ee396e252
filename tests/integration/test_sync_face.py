"""Sync calls with a saver whose connections live on a loop, from other threads than that loop's."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, Any, TypedDict

import pytest

from perdure import START, StateGraph
from perdure.errors import SyncCallError
from perdure.pregel.graph import Pregel
from perdure_checkpointers.postgres import PostgresSaver


class State(TypedDict):
    log: Annotated[list[str], operator.add]


def graph(saver: PostgresSaver) -> Pregel:
    def a(state: State) -> Any:
        return {"log": ["a"]}

    return StateGraph(State).add_node(a).add_edge(START, "a").compile(saver)


def thread(name: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": name}}


async def test_threads_call_a_graph_whose_saver_was_opened_on_a_loop(database_url: str) -> None:
    async with PostgresSaver.from_conn_string(database_url) as saver:
        made = graph(saver)

        def run(number: int) -> Any:
            outputs = [made.invoke({}, thread(f"{number}")) for _ in range(3)]
            return outputs[-1], made.get_state(thread(f"{number}")).next

        results = await asyncio.gather(*(asyncio.to_thread(run, number) for number in range(4)))

        assert results == [({"log": ["a", "a", "a"]}, ())] * 4
        assert (await made.aget_state(thread("3"))).values == {"log": ["a", "a", "a"]}


def test_after_the_loop_is_closed_a_sync_call_says_so(database_url: str) -> None:
    async def opened() -> Pregel:
        async with PostgresSaver.from_conn_string(database_url) as saver:
            made = graph(saver)
            await made.ainvoke({}, thread("t"))
            return made

    made = asyncio.run(opened())

    with pytest.raises(SyncCallError, match="belongs to an event loop that has stopped"):
        made.invoke({}, thread("t"))
