"""Random bodies that put events in the loop and in threads: readers get every event, in its order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.data import Send
from perdure.pregel.events.buffer import BUFFER_SIZE
from perdure.pregel.graph import Pregel
from perdure.runtime import Runtime, get_runtime
from tests.unit.pregel.following import Followed
from tests.unit.pregel.graphs import chain, returns, settle


class Here(NamedTuple):
    """Events put in the loop, without a pause."""

    events: int


class There(NamedTuple):
    """Events put in threads that run side by side, as many in each."""

    threads: int
    events: int


class Flush(NamedTuple):
    """A wait for readers."""


class Below(NamedTuple):
    """Events put by a child graph."""

    events: int


Program = Sequence[Here | There | Flush | Below]
COUNTS = st.integers(1, 2 * BUFFER_SIZE)
PROGRAMS = st.lists(
    st.one_of(
        st.builds(Here, COUNTS),
        st.builds(There, st.integers(1, 3), COUNTS),
        st.builds(Flush),
        st.builds(Below, COUNTS),
    ),
    max_size=6,
)


class Body:
    """A node that runs a program, and numbers its events: by its name, the part, the thread, and a count."""

    def __init__(self, programs: Sequence[Program]) -> None:
        self.programs = programs

    async def __call__(self, number: int) -> None:
        runtime = get_runtime()
        for part, step in enumerate(self.programs[number]):
            await self.take(step, (number, part), runtime)

    async def take(self, step: Here | There | Flush | Below, place: tuple[int, int], runtime: Any) -> None:
        match step:
            case Here(events):
                put(runtime, place, 0, events)
            case There(threads, events):
                async with anyio.create_task_group() as group:
                    for thread in range(threads):
                        group.start_soon(asyncio.to_thread, put, runtime, place, thread, events)
            case Flush():
                await runtime.flush()
            case Below(events):

                async def says(state: Any) -> None:
                    put(get_runtime(), place, 0, events)

                await chain(["x"], {"x": says}).compile().ainvoke({})


def put(runtime: Runtime[Any], place: tuple[int, int], thread: int, count: int) -> None:
    for number in range(count):
        runtime.stream_writer((*place, thread, number))


def expected(number: int, program: Program) -> set[tuple[int, ...]]:
    """Return all events of one body's program."""
    events: set[tuple[int, ...]] = set()
    for part, step in enumerate(program):
        threads = step.threads if isinstance(step, There) else 1
        count = 0 if isinstance(step, Flush) else step.events
        events |= {(number, part, thread, n) for thread in range(threads) for n in range(count)}
    return events


async def told(graph: Pregel, seed: int) -> list[list[Any]]:
    """Run a graph, and return what two readers were told, each of which reads when it likes."""
    run = Followed(graph)
    readers = [run.reader("custom", subgraphs=True) for _ in range(2)]
    told: list[list[Any]] = [[], []]
    draw = random.Random(seed)

    async def follow(index: int) -> None:
        while batch := await readers[index].batch():
            told[index].extend(event for _, event in batch)
            await settle(draw.randrange(20))

    async with anyio.create_task_group() as group:
        group.start_soon(follow, 0)
        group.start_soon(follow, 1)
        group.start_soon(run.run)
    return told


@settings(max_examples=40)
@given(
    programs=st.lists(PROGRAMS, min_size=1, max_size=3),
    limit=st.sampled_from([None, 1, 2]),
    seed=st.integers(),
)
def test_no_event_is_lost_or_overtaken(programs: list[Program], limit: int | None, seed: int) -> None:
    sends = [Send("b", number) for number in range(len(programs))]
    graph = chain(["a"], {"a": returns(sends)}).add_node("b", Body(programs)).compile()
    graph = graph.with_config({"max_concurrency": limit})
    first, second = asyncio.run(told(graph, seed))

    assert first == second
    for number, program in enumerate(programs):
        own = [event for event in first if event[0] == number]
        assert [event[1] for event in own] == sorted(event[1] for event in own), "a part follows the other"
        assert sorted(own) == sorted(expected(number, program))
        for part in {event[1:3] for event in own}:
            numbers = [event[3] for event in own if event[1:3] == part]
            assert numbers == list(range(len(numbers))), "within a thread, one event follows the other"
