"""A case that is ready to run on one side: its graph is compiled, its saver open, its threads filled."""

import asyncio
import gc
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from itertools import count
from typing import Any

from pydantic_core import to_jsonable_python

from cases import Case
from sides import Side, memory_saver, names_of, postgres_saver

State = Mapping[str, Any]
Run = Callable[[], Awaitable[list[State]]]

SPARE_STEPS = 10
"""A margin on the recursion limit: the sides count the first and the last superstep differently."""


class WrongResultError(Exception):
    """A side computed a wrong result."""


class Rig:
    """A maker of runs that are ready to be measured."""

    def __init__(self, side: Side, case: Case, saver: Any) -> None:
        self.case = case
        self.digest = ""
        """A digest of the final states of the last checked run. It must be equal on every side."""
        self._side = side
        self._builder = case.build(names_of(side))
        self._graph = self._builder.compile(checkpointer=saver)
        self._thread_numbers = count()
        self._keywords = {} if case.durability is None else {"durability": case.durability}

    async def prepare(self, data: State) -> Run:
        """Do everything that is not measured: compile, make and fill threads, collect garbage."""
        if self.case.saver == "memory":
            self._graph = self._builder.compile(checkpointer=memory_saver(self._side))
        configs = [self._config() for _ in range(self.case.threads)]
        if self.case.seed is not None:
            for config in configs:
                await self._graph.ainvoke(dict(self.case.seed), config, durability="sync")
        gc.collect()
        return lambda: self._run(dict(data), configs)

    def _config(self) -> dict[str, Any]:
        config: dict[str, Any] = {"recursion_limit": self.case.units + SPARE_STEPS}
        if self.case.saver != "none":
            config["configurable"] = {"thread_id": f"thread-{next(self._thread_numbers)}"}
        return config

    async def _run(self, data: State, configs: list[dict[str, Any]]) -> list[State]:
        if self.case.events is not None:
            return [await self._stream(data, configs[0])]
        if len(configs) == 1:
            return [await self._graph.ainvoke(data, configs[0], **self._keywords)]
        runs = [self._graph.ainvoke(data, config, **self._keywords) for config in configs]
        return list(await asyncio.gather(*runs))

    async def _stream(self, data: State, config: dict[str, Any]) -> State:
        events, last = 0, data
        async for state in self._graph.astream(data, config, stream_mode="values"):
            events += 1
            last = state
        if events != self.case.events:
            raise WrongResultError(f"got {events} values events instead of {self.case.events}")
        return last

    def check(self, states: list[State]) -> None:
        """Check the final states: a side with a wrong result is not faster."""
        for state in states:
            if not self.case.holds(state):
                raise WrongResultError(f"wrong final state of {self.case.name}: {str(state)[:200]}")
        text = json.dumps(states, sort_keys=True, default=to_jsonable_python)
        self.digest = hashlib.sha256(text.encode()).hexdigest()


@asynccontextmanager
async def opened_rig(side: Side, case: Case, uri: str | None) -> AsyncIterator[Rig]:
    """Open a rig and warm it up with one run."""
    if case.saver == "postgres" and uri is None:
        raise ValueError(f"{case.name} needs a database: pass --uri")
    saver_context = postgres_saver(side, uri) if case.saver == "postgres" and uri else nullcontext()
    async with saver_context as saver:
        rig = Rig(side, case, saver)
        warm_up = await rig.prepare(case.input if case.warm_up is None else case.warm_up)
        await warm_up()
        yield rig
