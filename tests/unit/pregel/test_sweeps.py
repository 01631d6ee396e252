"""A graph with everything in it, killed at each of its commits: it ends as if nothing had happened.

And no body runs again whose result was stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextvars import ContextVar
from itertools import count
from typing import Any

import pytest

from perdure.checkpoint.base import Commit
from perdure.constants import RESERVED_SLOTS, START
from perdure.data import Command, Durability, NodeError, RetryPolicy, Send, StateSnapshot, StreamMode
from perdure.graph.state import StateGraph
from perdure.pregel.graph import Pregel
from perdure.runtime import get_runtime
from perdure.testing import FakeClock
from tests.unit.pregel.graphs import Log, chain, thread
from tests.unit.pregel.savers import WatchedSaver
from tests.unit.pregel.test_crashes import HOW, GoesOn

MODES = pytest.mark.parametrize("durability", ["sync", "async", "exit"])
WIDTHS = pytest.mark.parametrize("width", [None, 1], ids=["wide", "one at a time"])
AT_ONCE = RetryPolicy(initial_interval=0, jitter=False)
HANDLER = "__error_handler__broken"

outer_attempt: ContextVar[int] = ContextVar("outer_attempt", default=0)


class World:
    """One store, on which processes die, and everything that bodies do on it.

    Attributes:
        began: the nodes of the outermost graph whose bodies began, by the checkpoint that they began at.
        repeated: bodies that began although what they do was stored.
        on_body: called with the number of each body that begins.
    """

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.saver = WatchedSaver(self.clock)
        self.began: dict[str, list[str]] = {}
        self.repeated: list[str] = []
        self.bodies = 0
        self.on_body: Callable[[int], None] | None = None

    def body(self, name: str, result: Callable[[Any], Awaitable[Any]] | None = None) -> Any:
        async def action(state: Any) -> Any:
            self._begins(name)
            return {"log": [name]} if result is None else await result(state)

        return action

    def _begins(self, name: str) -> None:
        info = get_runtime().execution_info
        assert info is not None
        own, _, _ = info.checkpoint_ns.rpartition("|")
        if not own:
            self.began.setdefault(info.checkpoint_id, []).append(name)
        for commit in self.saver.acknowledged:
            finished = {row.task_id for row in commit.writes if row.channel not in RESERVED_SLOTS}
            passed = [r for r in commit.checkpoints if r.ns == own and r.checkpoint_id > info.checkpoint_id]
            if info.task_id in finished or passed:
                self.repeated.append(name)
        self.bodies += 1
        if self.on_body is not None:
            self.on_body(self.bodies)

    async def until_it_dies(self, run: Awaitable[Any], nth: int, *, unheard: bool) -> bool:
        """Let the process die while it sends its nth commit, which arrives nevertheless if `unheard`."""
        sent = len(self.saver.sent)

        async def before(commit: Commit) -> None:
            if len(self.saver.sent) - sent >= nth:
                if unheard and len(self.saver.sent) - sent == nth:
                    await super(WatchedSaver, self.saver).acommit(commit)
                    self.saver.acknowledged.append(commit)
                self.saver.dead = True
                raise ConnectionError("this process is dead")

        self.saver.before_commit = before
        died = False
        try:
            await run
        except ConnectionError:
            died = True
        self.saver.dead, self.saver.before_commit = False, None
        self.clock.advance(31)
        return died


def everything(world: World) -> Pregel:
    """Sends, attempts, a handler, a join, a deferred node, children of children, a command for a parent."""
    builder = StateGraph(Log)
    builder.add_node("plan", world.body("plan", plans), destinations=("worker",))
    builder.add_node("worker", world.body("worker", works), retry_policy=AT_ONCE)
    builder.add_node("broken", world.body("broken", breaks), error_handler=handles(world))
    builder.add_node("calls", calls(world), retry_policy=AT_ONCE)
    builder.add_node("nested", nested(world))
    builder.add_node("leaves", leaving(world))
    for name in ("after", "joined", "elsewhere"):
        builder.add_node(name, world.body(name))
    builder.add_node("late", world.body("late"), defer=True)
    builder.add_edge(START, "plan").add_edge("plan", "broken").add_edge("plan", "calls")
    builder.add_edge("plan", "nested").add_edge("plan", "leaves")
    builder.add_edge(["nested", "after", "calls"], "joined").add_edge("worker", "late")
    builder.add_edge("joined", "late")
    return builder.compile(checkpointer=world.saver, clock=world.clock, name="everything")


async def plans(state: Any) -> Any:
    return Command(update={"log": ["plan"]}, goto=[Send("worker", {"x": x}) for x in range(3)])


async def works(state: Any) -> Any:
    info = get_runtime().execution_info
    assert info is not None
    if state["x"] == 1 and info.node_attempt == 1:
        raise ConnectionError("a worker's first attempt")
    return {"log": [f"worker {state['x']}"]}


async def breaks(state: Any) -> Any:
    raise ValueError("broken")


def handles(world: World) -> Any:
    async def handler(state: Any, error: NodeError) -> Any:
        world._begins(HANDLER)
        return Command(update={"log": [f"handled {error.node}"]}, goto="after")

    return handler


def calls(world: World) -> Any:
    """A node that invokes two graphs, the second of which fails in the node's first attempt."""

    async def once(state: Any) -> Any:
        if outer_attempt.get() == 1:
            raise ConnectionError("the first attempt")
        return {"log": ["second"]}

    first = chain(["f1", "f2"], {name: world.body(name) for name in ("f1", "f2")}).compile()
    names = ["s1", "s2", "s3"]
    second = chain(names, {**{name: world.body(name) for name in names}, "s2": world.body("s2", once)})
    child = second.compile()

    async def action(state: Any) -> Any:
        info = get_runtime().execution_info
        assert info is not None
        outer_attempt.set(info.node_attempt)
        one = await first.ainvoke({})
        two = await child.ainvoke(Command(update={"log": ["commanded"]}, goto="s1"))
        return {"log": [*one["log"], *two["log"]]}

    return world.body("calls", action)


def nested(world: World) -> Pregel:
    """A graph in a graph, both nodes, the inner one of which starts with nothing of the outer log."""
    inner = StateGraph(Log)
    for name in ("i1", "i2"):
        inner.add_node(name, world.body(name)).add_edge(START, name)
    inner.add_node("i3", world.body("i3"), defer=True).add_edge(["i1", "i2"], "i3")
    middle = StateGraph(Log)
    middle.add_node("inner", only_new(inner.compile())).add_node("m", world.body("m"))
    middle.add_edge(START, "inner").add_edge("inner", "m")
    return middle.compile()


def only_new(graph: Pregel) -> Any:
    async def action(state: Any) -> Any:
        return {"log": (await graph.ainvoke({}))["log"]}

    return action


def leaving(world: World) -> Pregel:
    """A graph whose last node leaves for the graph around it."""

    async def leave(state: Any) -> Any:
        return Command(graph=Command.PARENT, update={"log": ["left"]}, goto="elsewhere")

    return chain(
        ["l1", "l2"],
        {"l1": world.body("l1"), "l2": world.body("l2", leave)},
    ).compile()


async def undisturbed(durability: Durability, options: Mapping[str, Any], given: Any) -> tuple[Any, int]:
    """How the run ends if nobody kills it, and how many commits it takes."""
    world = World()
    graph = everything(world)
    result = await graph.ainvoke(given, thread(**options), durability=durability)
    assert world.repeated == []
    return result, len(world.saver.sent)


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
        run = graph.ainvoke({}, thread(**options), durability=durability)
        assert await world.until_it_dies(run, nth, unheard=unheard)
        seen = await graph.aget_state(thread())
        ended = not await world.saver.aorphans()
        world.began.clear()
        result = (await graph.ainvoke(None, thread(**options))) if ended else await goes_on(graph)

        assert result == expected, nth
        assert world.repeated == [], nth
        assert_told(seen, world)
        assert (await graph.aget_state(thread())).values == expected
        assert (await graph.aget_state(thread())).next == ()


def assert_told(seen: StateSnapshot, world: World) -> None:
    """What was left to do is what was done, where the run had stored anything."""
    if seen.config["configurable"].get("checkpoint_id") in world.began:
        bodies = world.began[seen.config["configurable"]["checkpoint_id"]]
        without_body = {"nested", "leaves"}
        assert set(bodies) - {HANDLER} == {name for name in seen.next if name not in without_body} - {HANDLER}


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
        run = asyncio.ensure_future(graph.ainvoke({}, thread(**options), durability=durability))
        world.on_body = lambda begun, nth=nth, run=run: run.cancel() if begun == nth else None
        try:
            assert await run == expected
        except asyncio.CancelledError:
            pass
        else:
            break
        world.on_body = None
        seen = await graph.aget_state(thread())
        world.began.clear()

        assert await graph.ainvoke(None, thread(**options)) == expected, nth
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
            result = await graph.ainvoke({}, thread(**options), durability=durability)
        except ArithmeticError:
            failures += 1
            seen = await graph.aget_state(thread())
            world.began.clear()
            result = await graph.ainvoke(None, thread(**options))
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
            run = graph.ainvoke(None if outputs else {}, thread(), durability=durability, **stops)
            before = len(world.saver.sent)
            if nth is None or len(world.saver.sent) >= nth:
                outputs.append(await run)
            elif await world.until_it_dies(record(run, outputs), nth - before, unheard=False):
                outputs.append(await goes_on(graph))
            left = (await graph.aget_state(thread())).next
        return outputs

    async def record(run: Awaitable[Any], outputs: list[Any]) -> None:
        outputs.append(await run)

    calm = World()
    expected = await stretches(calm, None)
    for nth in range(1, len(calm.saver.sent) + 1):
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
        stream = graph.astream({}, thread(), stream_mode=mode, durability=durability)
        taken = [event async for event in first(stream, nth)]
        seen = await graph.aget_state(thread())
        world.began.clear()
        if len(taken) < nth:
            break

        assert await graph.ainvoke(None, thread()) == expected, nth
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
