"""A graph with everything in it, and a store that keeps count of what its nodes do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final

from perdure.cache.base import BaseCache
from perdure.checkpoint.base import Commit, Fence, LeasedSaver, RunEnd
from perdure.checkpoint.memory import InMemorySaver
from perdure.clock import SYSTEM_CLOCK, Clock
from perdure.constants import RESERVED_SLOTS, START
from perdure.data import CachePolicy, Command, NodeError, RetryPolicy, Send, StateSnapshot
from perdure.graph.state import StateGraph
from perdure.pregel.graph import Pregel
from perdure.runtime import get_runtime
from perdure.testing import FakeClock
from tests.unit.pregel.graphs import Log, chain, thread

AT_ONCE: Final = RetryPolicy(initial_interval=0, jitter=False)
HANDLER: Final = "__error_handler__broken"

_outer_attempt: ContextVar[int] = ContextVar("outer_attempt", default=0)


class World:
    """A store on which processes die, and a record of the bodies that run on it.

    Attributes:
        sent, acknowledged: the commits that a process sent, and those that were acknowledged.
        began: the nodes of the outermost graph whose bodies began, by the checkpoint at which they began.
        repeated: the bodies that began although their result was stored.
        on_body: called with the number of each body that begins.
    """

    def __init__(
        self,
        saver: LeasedSaver | None = None,
        expire: Callable[[], Awaitable[Any]] | None = None,
        thread_id: str = "t",
    ) -> None:
        self.clock: Clock = SYSTEM_CLOCK
        if saver is None:
            clock = self.clock = FakeClock()
            saver = InMemorySaver(clock=clock)

            async def expire() -> None:
                clock.advance(31)

        assert expire is not None
        self.saver = saver
        self.expire = expire
        self.config = thread(thread_id)
        self.sent: list[Commit] = []
        self.acknowledged: list[Commit] = []
        self.began: dict[str, list[str]] = {}
        self.repeated: list[str] = []
        self.bodies = 0
        self.on_body: Callable[[int], None] | None = None
        self._dies_at: int | None = None
        self._unheard = False
        self._commit, self._release = saver.acommit, saver.arelease
        setattr(saver, "acommit", self._watched_commit)  # noqa: B010  # what mypy takes for a mistake
        setattr(saver, "arelease", self._watched_release)  # noqa: B010

    async def _watched_commit(self, commit: Commit) -> None:
        self.sent.append(commit)
        last = self._dies_at == len(self.sent)
        if not self.dead or (last and self._unheard):
            await self._commit(commit)
            self.acknowledged.append(commit)
        if self.dead:
            raise ConnectionError("this process is dead")

    async def _watched_release(self, fence: Fence, end: RunEnd) -> None:
        if self.dead:
            raise ConnectionError("this process is dead")
        await self._release(fence, end)

    @property
    def dead(self) -> bool:
        return self._dies_at is not None and len(self.sent) >= self._dies_at

    def body(self, name: str, result: Callable[[Any], Awaitable[Any]] | None = None) -> Any:
        async def action(state: Any) -> Any:
            self.begins(name)
            return {"log": [name]} if result is None else await result(state)

        return action

    def begins(self, name: str) -> None:
        """Note that a body begins, and whether its result was stored already."""
        info = get_runtime().execution_info
        assert info is not None
        own, _, _ = info.checkpoint_ns.rpartition("|")
        if not own:
            self.began.setdefault(info.checkpoint_id, []).append(name)
        for commit in self.acknowledged:
            if commit.thread_id != info.thread_id:
                continue
            finished = {row.task_id for row in commit.writes if row.channel not in RESERVED_SLOTS}
            passed = [r for r in commit.checkpoints if r.ns == own and r.checkpoint_id > info.checkpoint_id]
            if info.task_id in finished or passed:
                self.repeated.append(name)
        self.bodies += 1
        if self.on_body is not None:
            self.on_body(self.bodies)

    async def until_it_dies(self, run: Awaitable[Any], nth: int, *, unheard: bool) -> bool:
        """Let the process die while it sends its nth commit, which arrives nevertheless if `unheard`."""
        self._dies_at, self._unheard = len(self.sent) + nth, unheard
        died = False
        try:
            await run
        except ConnectionError:
            died = True
        self._dies_at = None
        if died:
            await self.expire()
        return died


def everything(world: World, *, cache: BaseCache | None = None) -> Pregel:
    """Build a graph of Sends, attempts, a handler, a join, a deferred node, nested graphs and a handoff."""
    builder = StateGraph(Log)
    builder.set_node_defaults(cache_policy=None if cache is None else CachePolicy(key_func=str))
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
    return builder.compile(checkpointer=world.saver, clock=world.clock, name="everything", cache=cache)


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
        world.begins(HANDLER)
        return Command(update={"log": [f"handled {error.node}"]}, goto="after")

    return handler


def calls(world: World) -> Any:
    """Make a node that invokes two graphs. The second one fails in the node's first attempt."""

    async def once(state: Any) -> Any:
        if _outer_attempt.get() == 1:
            raise ConnectionError("the first attempt")
        return {"log": ["second"]}

    first = chain(["f1", "f2"], {name: world.body(name) for name in ("f1", "f2")}).compile()
    names = ["s1", "s2", "s3"]
    second = chain(names, {**{name: world.body(name) for name in names}, "s2": world.body("s2", once)})
    child = second.compile()

    async def action(state: Any) -> Any:
        info = get_runtime().execution_info
        assert info is not None
        _outer_attempt.set(info.node_attempt)
        one = await first.ainvoke({})
        two = await child.ainvoke(Command(update={"log": ["commanded"]}, goto="s1"))
        return {"log": [*one["log"], *two["log"]]}

    return world.body("calls", action)


def nested(world: World) -> Pregel:
    """Build a graph in a graph, each as a node. The inner one starts with an empty log."""
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
    """Build a graph whose last node leaves for the parent graph."""

    async def leave(state: Any) -> Any:
        return Command(graph=Command.PARENT, update={"log": ["left"]}, goto="elsewhere")

    return chain(
        ["l1", "l2"],
        {"l1": world.body("l1"), "l2": world.body("l2", leave)},
    ).compile()


def assert_told(seen: StateSnapshot, world: World) -> None:
    """Assert that the tasks of the snapshot have run, if the run had stored anything."""
    if seen.config["configurable"].get("checkpoint_id") in world.began:
        bodies = world.began[seen.config["configurable"]["checkpoint_id"]]
        without_body = {"nested", "leaves"}
        assert set(bodies) - {HANDLER} == {name for name in seen.next if name not in without_body} - {HANDLER}
