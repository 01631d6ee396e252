"""A run that several readers follow, for tests of streams."""

from __future__ import annotations

from typing import Any

from perdure.data import Durability
from perdure.pregel.events.buffer import Buffer, Reader
from perdure.pregel.graph import Pregel
from perdure.pregel.run.begin import run_graph


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

    def reader(self, modes: Any, *, subgraphs: bool = False) -> Reader:
        return self.buffer.reader(modes, subgraphs=subgraphs)

    async def run(self) -> Any:
        try:
            return await run_graph(self._request)
        finally:
            self.buffer.close()


async def read(reader: Reader, into: list[Any]) -> None:
    """Read to the end."""
    while batch := await reader.batch():
        into.extend(batch)
