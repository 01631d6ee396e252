"""A graph with everything in it, killed, cancelled, failed, stopped and left wherever that can be.

It ends as if nothing had happened, and no body runs again whose result was stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping
from itertools import count
from typing import Any

import pytest

from perdure.data import Durability, StreamMode
from tests.unit.pregel.test_crashes import HOW, GoesOn
from tests.unit.pregel.worlds import World, assert_told, everything

MODES = pytest.mark.parametrize("durability", ["sync", "async", "exit"])
WIDTHS = pytest.mark.parametrize("width", [None, 1], ids=["wide", "one at a time"])


async def undisturbed(durability: Durability, options: Mapping[str, Any], given: Any) -> tuple[Any, int]:
    """How the run ends if nobody kills it, and how many commits it takes."""
    world = World()
    graph = everything(world)
    result = await graph.ainvoke(given, {**world.config, **options}, durability=durability)
    assert world.repeated == []
    return result, len(world.sent)


@HOW
@MODES
@WIDTHS
@pytest.mark.parametrize("unheard", [False, True], ids=["lost", "unheard"])
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
@WIDTHS
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


@MODES
@WIDTHS
async def test_a_run_one_body_of_which_fails_is_resumed_to_the_same_end(
    durability: Durability, width: int | None
) -> None:
    options: dict[str, Any] = {"max_concurrency": width}
    expected, _ = await undisturbed(durability, options, {})
    failures = 0
    for nth in range(1, 40):
        world = World()
        graph = everything(world)

        def fails(begun: int, nth: int = nth) -> None:
            if begun == nth:
                raise ArithmeticError("once")

        world.on_body = fails
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


@HOW
@MODES
@pytest.mark.parametrize(
    "stops", [{"interrupt_before": "*"}, {"interrupt_after": "*"}, {"interrupt_before": ["late", "after"]}]
)
async def test_a_run_that_stops_on_purpose_stops_where_it_would_whenever_it_is_killed(
    goes_on: GoesOn, durability: Durability, stops: dict[str, Any]
) -> None:
    async def stretches(world: World, nth: int | None) -> list[Any]:
        """What each call returned until nothing is left to do, one of which is killed at a commit."""
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
    """The first events of a stream, which is left after them."""
    taken = 0
    async for event in stream:
        yield event
        taken += 1
        if taken == nth:
            break
    await stream.aclose()  # type: ignore[attr-defined]  # a generator's
