"""Runs that readers follow, and bodies that have something to tell, for tests of streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure.constants import START
from perdure.data import Durability
from perdure.graph.state import StateGraph
from perdure.pregel.events.buffer import Buffer, EventReader
from perdure.pregel.graph import Pregel
from perdure.pregel.run.begin import run_graph
from perdure.runtime import get_runtime, get_stream_writer
from tests.unit.pregel.graphs import Action, Log


class Followed:
    """One run of a graph, and the buffer from which any number of readers take its events."""

    def __init__(
        self,
        graph: Pregel,
        given: Any = None,
        config: Any = None,
        *,
        durability: Durability | None = None,
    ) -> None:
        self.buffer = Buffer(graph.most_unread)
        request = graph._request({} if given is None else given, config, None, None, durability)
        self._request = request.read_through(self.buffer)

    def reader(self, modes: Any, *, subgraphs: bool = False) -> EventReader:
        return self.buffer.reader(modes, subgraphs=subgraphs)

    async def run(self) -> Any:
        try:
            return await run_graph(self._request)
        finally:
            self.buffer.close()


async def read(reader: EventReader, into: list[Any]) -> None:
    """Read to the end."""
    while batch := await reader.batch():
        into.extend(batch)


def writes(count: int) -> Action:
    """Make a body that puts events without awaiting anything."""

    async def body(state: Any) -> None:
        write = get_stream_writer()
        for number in range(count):
            write(number)

    return body


def flushes(count: int, every: int = 1) -> Action:
    """Make a body that lets readers take its events."""

    async def body(state: Any) -> None:
        runtime = get_runtime()
        for number in range(count):
            if number % every == 0:
                await runtime.flush()
            runtime.stream_writer(number)

    return body


def node(action: Callable[..., Any]) -> Pregel:
    """Make a graph of one node."""
    return StateGraph(Log).add_node("a", action).add_edge(START, "a").compile()


async def custom(graph: Pregel, **more: Any) -> list[Any]:
    """Return all "custom" events of a run."""
    return [event async for event in graph.astream({}, stream_mode="custom", **more)]
