"""A graph with everything in it: killed, cancelled, failed, stopped and left at every possible place.

It ends as if nothing had happened, and no body whose result was stored runs again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from itertools import count
from typing import Any

import pytest

from perdure.cache.memory import InMemoryCache
from perdure.data import Command, Durability, Send, StreamMode
from perdure.pregel.graph import Pregel
from tests.unit.pregel.graphs import thread
from tests.unit.pregel.test_crashes import GoesOn, by_no_input, by_recover
from tests.unit.pregel.worlds import World, assert_told, everything

MODES = pytest.mark.parametrize("durability", ["sync", "async", "exit"])
WIDTHS = pytest.mark.parametrize("width", [None, 1], ids=["wide", "one at a time"])


async def undisturbed(durability: Durability, options: Mapping[str, Any], given: Any) -> tuple[Any, int]:
    """Return the final state of a run that nobody kills, and its number of commits."""
    world = World()
    graph = everything(world)
    result = await graph.ainvoke(given, {**world.config, **options}, durability=durability)
    assert world.repeated == []
    return result, len(world.sent)


@MODES
@pytest.mark.parametrize(
    ("goes_on", "width", "unheard"),
    [(by_recover, None, False), (by_no_input, 1, False), (by_recover, 1, True), (by_no_input, None, True)],
)
async def test_a_run_that_is_killed_at_any_of_its_commits_ends_the_same(
    goes_on: GoesOn, durability: Durability, width: int | None, unheard: bool
) -> None:
    options: dict[str, Any] = {"max_concurrency": width}
    expected, commits = await undisturbed(durability, options, {})
    for nth in range(1, commits + 1):
        world = World()
        graph = everything(world)
        run = graph.ainvoke({}, {**world.config, **options}, durability=durability)
        assert await world.until_it_dies(run, nth, unheard=unheard)
        seen = await graph.aget_state(world.config)
        ended = not await world.saver.aorphans()
        world.began.clear()
        result = (await graph.ainvoke(None, {**world.config, **options})) if ended else await goes_on(graph)

        assert result == expected, nth
        assert world.repeated == [], nth
        assert_told(seen, world)
        assert (await graph.aget_state(world.config)).values == expected
        assert (await graph.aget_state(world.config)).next == ()


@MODES
@pytest.mark.parametrize("failing", [2, 6, 14], ids=["early", "midway", "late"])
async def test_a_command_whose_run_is_killed_at_any_of_its_commits_counts_once(
    durability: Durability, failing: int
) -> None:
    command = Command(update={"log": ["told"], "x": 7}, goto=["elsewhere", Send("worker", {"x": 5})])

    async def failed() -> tuple[World, Pregel]:
        """Make a thread that has tasks left to do."""
        world = World()
        graph = everything(world)
        world.on_body = raises_at(failing)
        with pytest.raises(ArithmeticError):
            await graph.ainvoke({}, world.config, durability=durability)
        return world, graph

    calm, graph = await failed()
    before = len(calm.sent)
    expected = await graph.ainvoke(command, calm.config, durability=durability)
    assert expected["log"].count("told") == expected["log"].count("worker 5") == 1
    for nth in range(1, len(calm.sent) - before + 1):
        world, graph = await failed()
        run = graph.ainvoke(command, world.config, durability=durability)
        assert await world.until_it_dies(run, nth, unheard=False)

        assert await by_recover(graph) == expected, nth
        assert world.repeated == [], nth


@MODES
@WIDTHS
async def test_a_run_with_a_warm_cache_that_is_killed_at_any_of_its_commits_ends_the_same(
    durability: Durability, width: int | None
) -> None:
    nth, world = 0, World()
    for nth in count(1):
        world = World()
        graph = everything(world, cache=InMemoryCache())
        options: dict[str, Any] = {"max_concurrency": width}
        expected = await graph.ainvoke({}, {**world.config, **options})
        world.bodies = 0
        world.config = thread("warm")
        run = graph.ainvoke({}, {**world.config, **options}, durability=durability)
        if not await world.until_it_dies(run, nth, unheard=False):
            break

        assert await by_recover(graph) == expected, nth
        assert (world.repeated, world.bodies <= 4) == ([], True), nth
    assert nth > 1
    assert world.bodies == 2  # only the node that fails, and what handles it


def raises_at(nth: int) -> Callable[[int], None]:
    """Return an `on_body` that fails the nth body, once."""

    def on_body(begun: int) -> None:
        if begun == nth:
            raise ArithmeticError("once")

    return on_body


@pytest.mark.parametrize(("durability", "width"), [("sync", None), ("async", 1), ("exit", None)])
async def test_a_run_that_is_cancelled_in_any_of_its_bodies_is_resumed_to_the_same_end(
    durability: Durability, width: int | None
) -> None:
    options: dict[str, Any] = {"max_concurrency": width}
    expected, _ = await undisturbed(durability, options, {})
    for nth in count(1):
        world = World()
        graph = everything(world)
        run = asyncio.ensure_future(graph.ainvoke({}, {**world.config, **options}, durability=durability))
        world.on_body = lambda begun, nth=nth, run=run: run.cancel() if begun == nth else None
        try:
            assert await run == expected
        except asyncio.CancelledError:
            pass
        else:
            break
        world.on_body = None
        seen = await graph.aget_state(world.config)
        world.began.clear()

        assert await graph.ainvoke(None, {**world.config, **options}) == expected, nth
        assert world.repeated == [], nth
        assert_told(seen, world)
    assert nth > 20


@pytest.mark.parametrize(("durability", "width"), [("sync", 1), ("async", None), ("exit", None)])
async def test_a_run_one_body_of_which_fails_is_resumed_to_the_same_end(
    durability: Durability, width: int | None
) -> None:
    options: dict[str, Any] = {"max_concurrency": width}
    expected, _ = await undisturbed(durability, options, {})
    failures = 0
    for nth in range(1, 40):
        world = World()
        graph = everything(world)
        world.on_body = raises_at(nth)
        try:
            result = await graph.ainvoke({}, {**world.config, **options}, durability=durability)
        except ArithmeticError:
            failures += 1
            seen = await graph.aget_state(world.config)
            world.began.clear()
            result = await graph.ainvoke(None, {**world.config, **options})
            assert_told(seen, world)

        assert result == expected, nth
        assert world.repeated == [], nth
    assert failures > 15


@MODES
@pytest.mark.parametrize(
    ("goes_on", "stops"),
    [
        (by_recover, {"interrupt_before": "*"}),
        (by_recover, {"interrupt_after": "*"}),
        (by_no_input, {"interrupt_before": ["late"], "interrupt_after": ["plan", "joined"]}),
    ],
)
async def test_a_run_that_stops_on_purpose_stops_where_it_would_whenever_it_is_killed(
    goes_on: GoesOn, durability: Durability, stops: dict[str, Any]
) -> None:
    async def stretches(world: World, nth: int | None) -> list[Any]:
        """Return the results of all calls until nothing is left to do. One call is killed at a commit."""
        outputs: list[Any] = []
        graph = everything(world)
        left: tuple[str, ...] = ("plan",)
        while left:
            run = graph.ainvoke(None if outputs else {}, world.config, durability=durability, **stops)
            before = len(world.sent)
            if nth is None or len(world.sent) >= nth:
                outputs.append(await run)
            elif await world.until_it_dies(record(run, outputs), nth - before, unheard=False):
                outputs.append(await goes_on(graph))
            left = (await graph.aget_state(world.config)).next
        return outputs

    async def record(run: Awaitable[Any], outputs: list[Any]) -> None:
        outputs.append(await run)

    calm = World()
    expected = await stretches(calm, None)
    for nth in range(1, len(calm.sent) + 1):
        world = World()
        assert await stretches(world, nth) == expected, nth
        assert world.repeated == [], nth


@MODES
@pytest.mark.parametrize("mode", ["values", "updates"])
async def test_a_stream_that_is_left_at_any_event_is_resumed_to_the_same_end(
    durability: Durability, mode: StreamMode
) -> None:
    expected, _ = await undisturbed(durability, {}, {})
    for nth in count(1):
        world = World()
        graph = everything(world)
        stream = graph.astream({}, world.config, stream_mode=mode, durability=durability)
        taken = [event async for event in first(stream, nth)]
        seen = await graph.aget_state(world.config)
        world.began.clear()
        if len(taken) < nth:
            break

        assert await graph.ainvoke(None, world.config) == expected, nth
        assert world.repeated == [], nth
        assert_told(seen, world)
    assert nth > 5


async def first(stream: AsyncIterator[Any], nth: int) -> AsyncIterator[Any]:
    """Return the first events of a stream, and leave it."""
    taken = 0
    async for event in stream:
        yield event
        taken += 1
        if taken == nth:
            break
    await stream.aclose()  # type: ignore[attr-defined]  # a generator's
