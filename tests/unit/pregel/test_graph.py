"""The public methods of a compiled graph, and the calls that they refuse."""

from __future__ import annotations

import asyncio
import gc
from typing import Any, TypedDict, cast

import anyio
import pytest

from perdure.checkpoint.base import BaseCheckpointSaver, Commit
from perdure.checkpoint.memory import InMemorySaver
from perdure.config import RunnableConfig
from perdure.constants import START
from perdure.data import Durability
from perdure.errors import (
    GraphValidationError,
    OrphanTakenError,
    PerdureWarning,
    RecoveryRefusedError,
    ThreadBusyError,
    UnfencedSaverWarning,
)
from perdure.graph.state import StateGraph
from perdure.service.recovery import recover
from perdure.testing.clock import FakeClock
from tests.unit.pregel.graphs import Gate, Log, Runs, chain, fan, logs, returns, settle, thread
from tests.unit.pregel.savers import WatchedSaver


class Narrow(TypedDict):
    x: int


async def test_a_result_shows_the_keys_of_the_output_schema() -> None:
    builder = StateGraph(Log, output_schema=Narrow).add_node("a", logs("a")).add_edge(START, "a")

    assert await builder.compile().ainvoke({"x": 1, "y": 2}) == {"x": 1}


async def test_output_keys_choose_among_all_keys() -> None:
    builder = StateGraph(Log, output_schema=Narrow).add_node("a", logs("a")).add_edge(START, "a")

    assert await builder.compile().ainvoke({"x": 1}, output_keys=["log"]) == {"log": ["a"]}


async def test_keys_that_were_never_written_are_missing() -> None:
    assert await chain(["a"], {"a": returns(None)}).compile().ainvoke({}) == {"log": []}


async def test_an_unknown_output_key_is_refused_with_those_that_exist() -> None:
    graph = chain(["a"]).compile()
    with pytest.raises(GraphValidationError, match=r"Key 'z' not in channels. Known: log, x, y"):
        await graph.ainvoke({}, output_keys=["z"])
    with pytest.raises(GraphValidationError, match="Key 'z' not in channels"):
        graph.astream({}, output_keys=["x", "z"])


async def test_an_unknown_durability_is_refused_with_those_that_exist() -> None:
    saver = WatchedSaver()
    graph = chain(["a"]).compile(checkpointer=saver)
    with pytest.raises(GraphValidationError, match=r"Unknown durability 'never'. Known: sync, async, exit"):
        await graph.ainvoke({}, thread(), durability=cast("Durability", "never"))

    assert saver.claims == []


@pytest.mark.parametrize(
    "config", [{"recursion_limit": 0}, {"max_concurrency": 0}, {"recursion_limit": "many"}]
)
async def test_a_limit_that_is_none_is_refused_before_anything_is_claimed(config: dict[str, Any]) -> None:
    saver = WatchedSaver()
    with pytest.raises(GraphValidationError, match="must be at least 1"):
        await chain(["a"]).compile(checkpointer=saver).ainvoke({}, thread(**config))

    assert saver.claims == []


async def test_a_graph_may_be_used_by_many_at_once() -> None:
    saver = WatchedSaver()
    graph = chain(["a", "b"]).compile(checkpointer=saver)
    results: dict[int, Any] = {}

    async def run(number: int) -> None:
        results[number] = await graph.ainvoke({"x": number}, thread(str(number)))

    async with anyio.create_task_group() as group:
        for number in range(50):
            group.start_soon(run, number)

    assert results == {number: {"log": ["a", "b"], "x": number} for number in range(50)}


async def test_two_runs_at_once_on_one_thread_are_kept_apart() -> None:
    saver, gate = WatchedSaver(), Gate({"log": ["one"]})
    graph = chain(["gate"], {"gate": gate}).compile(checkpointer=saver)
    first = asyncio.create_task(graph.ainvoke({}, thread(run_id="first")))
    await gate.entered.wait()
    with pytest.raises(ThreadBusyError, match="first"):
        await graph.ainvoke({}, thread(run_id="second"))
    gate.open.set()

    assert await first == {"log": ["one"]}


async def test_the_same_steps_are_taken_with_and_without_a_saver() -> None:
    builder = chain(["a", "b"]).add_node("c", logs("c")).add_edge("a", "c")

    assert await builder.compile().ainvoke({}) == await builder.compile(checkpointer=WatchedSaver()).ainvoke(
        {}, thread()
    )


async def test_a_config_may_be_typed() -> None:
    config: RunnableConfig = {"configurable": {"thread_id": "t"}, "recursion_limit": 1}

    assert await chain(["a"]).compile(checkpointer=WatchedSaver()).ainvoke({}, config) == {"log": ["a"]}


# Continuing a run whose process is gone


async def orphaned(saver: WatchedSaver, clock: FakeClock, durability: Durability, nth: int) -> None:
    """Leave a run on the thread whose nth commit, and all after it, never arrived."""
    left = [nth]

    async def vanish(commit: Commit) -> None:
        left[0] -= 1
        if left[0] <= 0:
            raise ConnectionError("the process is gone")

    saver.before_commit, saver.dead = vanish, True
    graph = chain(["a", "b", "c"]).compile(checkpointer=saver, clock=clock, name="chain")
    with pytest.raises(ConnectionError):
        await graph.ainvoke({"log": ["in"]}, thread(metadata={"user": "me"}), durability=durability)
    saver.before_commit, saver.dead = None, False
    clock.advance(saver.lease_seconds)


@pytest.mark.parametrize(
    ("durability", "nth"), [("sync", 1), ("sync", 2), ("sync", 3), ("async", 1), ("async", 2), ("exit", 1)]
)
async def test_an_orphan_is_continued_from_its_last_checkpoint_or_its_recorded_input(
    durability: Durability, nth: int
) -> None:
    clock = FakeClock()
    saver = WatchedSaver(clock)
    await orphaned(saver, clock, durability, nth)
    runs = Runs()
    graph = chain(["a", "b", "c"], {n: runs.counted(n) for n in "abc"}).compile(
        checkpointer=saver, clock=clock, name="chain"
    )
    [orphan] = await saver.aorphans(graph="chain")
    assert orphan.started == bool(saver.acknowledged)

    assert (await graph.acontinue(orphan))["log"] == ["in", "a", "b", "c"]
    assert set(runs.of.values()) == {1}
    assert await saver.aorphans() == []
    snapshot = await graph.aget_state(thread())
    assert snapshot.metadata is not None
    assert snapshot.metadata["user"] == "me"
    assert snapshot.metadata["run_id"] == orphan.run_id


async def test_an_orphan_is_continued_once() -> None:
    clock = FakeClock()
    saver = WatchedSaver(clock)
    await orphaned(saver, clock, "sync", 2)
    graph = chain(["a", "b", "c"]).compile(checkpointer=saver, clock=clock, name="chain")
    [orphan] = await saver.aorphans()
    await graph.acontinue(orphan)

    with pytest.raises(OrphanTakenError, match="no orphan any more"):
        await graph.acontinue(orphan)
    assert await recover(graph) == []
    assert (await graph.aget_state(thread())).values["log"] == ["in", "a", "b", "c"]


# A saver without leases


class Unfenced(BaseCheckpointSaver):
    """A saver without leases."""

    def __init__(self) -> None:
        self._inner = InMemorySaver()
        self.serde = self._inner.serde
        for name in ("acommit", "aget_tuple", "alist", "aput", "aput_writes"):
            setattr(self, name, getattr(self._inner, name))

    acommit = aget_tuple = aput = aput_writes = adelete_thread = None  # type: ignore[assignment]
    alist = adelete_for_runs = acopy_thread = aprune = None  # type: ignore[assignment]


async def test_a_saver_without_leases_warns_and_stores() -> None:
    saver = Unfenced()
    broken = [ValueError("boom")]

    async def fails_once(state: Log) -> Any:
        if broken:
            raise broken.pop()
        return {"log": ["b"]}

    graph = chain(["a", "b"], {"b": fails_once}).compile(checkpointer=saver)
    with pytest.warns(UnfencedSaverWarning, match="Unfenced has no leases"):
        outcomes = await asyncio.gather(graph.ainvoke({}, thread()), return_exceptions=True)
    assert repr(outcomes) == "[ValueError('boom')]"
    assert (await graph.ainvoke(None, thread()))["log"] == ["a", "b"]
    snapshot = await graph.aget_state(thread())

    assert snapshot.next == ()
    assert snapshot.metadata is not None
    assert "run_id" not in snapshot.metadata


@pytest.mark.filterwarnings("ignore:Unfenced has no leases")
async def test_without_leases_an_input_is_stored_before_its_values_are_told_in_sync() -> None:
    saver, released = Unfenced(), anyio.Event()
    commit = saver._inner.acommit

    async def held(commits: Commit) -> None:
        await released.wait()
        await commit(commits)

    saver.acommit = held  # type: ignore[assignment]  # the class has none
    graph = chain(["a"]).compile(checkpointer=saver)
    stream = graph.astream({"x": 1}, thread(), stream_mode="values", durability="sync")
    first: asyncio.Future[Any] = asyncio.ensure_future(anext(stream))
    await settle()
    assert not first.done()
    released.set()

    assert await first == {"log": [], "x": 1}
    assert [values async for values in stream] == [{"log": ["a"], "x": 1}]


async def test_without_leases_nothing_can_be_recovered() -> None:
    graph = chain(["a"]).compile(checkpointer=Unfenced(), name="mine")

    with pytest.raises(RecoveryRefusedError, match=r"'mine' has Unfenced as its checkpointer.*has no leases"):
        await recover(graph)


async def test_the_warning_for_a_saver_without_leases_is_given_once_for_each_saver() -> None:
    saver = Unfenced()
    graph = chain(["a"]).compile(checkpointer=saver)
    with pytest.warns(UnfencedSaverWarning) as warned:
        await asyncio.gather(graph.ainvoke({}, thread("one")), graph.ainvoke({}, thread("two")))

    assert len(warned) == 1


async def test_of_two_recoverers_with_one_list_each_run_is_continued_by_one() -> None:
    clock = FakeClock()
    saver, runs = WatchedSaver(clock), Runs()
    await orphaned(saver, clock, "sync", 2)
    graph = chain(["a", "b", "c"], {n: runs.counted(n) for n in "abc"}).compile(
        checkpointer=saver, clock=clock, name="chain"
    )
    [orphan] = await saver.aorphans()
    outcomes = await asyncio.gather(*(graph.acontinue(orphan) for _ in range(2)), return_exceptions=True)

    assert sum(isinstance(outcome, dict) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, OrphanTakenError) for outcome in outcomes) == 1
    assert runs.of == {"b": 1, "c": 1}


async def test_a_durability_without_a_checkpointer_is_warned_about() -> None:
    with pytest.warns(PerdureWarning, match="no effect when no checkpointer"):
        await chain(["a"]).compile().ainvoke({}, durability="sync")


@pytest.mark.parametrize("names", ["a", "ab"], ids=["width 1", "width 2"])
@pytest.mark.parametrize("stored", [False, True])
def test_a_run_whose_loop_was_closed_is_collected_without_a_warning(names: str, stored: bool) -> None:
    async def stops(state: Log) -> None:
        await settle()
        asyncio.get_running_loop().stop()
        await anyio.sleep_forever()

    graph = fan(names, {"a": stops}).compile(checkpointer=WatchedSaver() if stored else None)
    loop = asyncio.new_event_loop()
    run = loop.create_task(graph.ainvoke({}, thread()))
    loop.run_forever()
    loop.close()
    assert not run.done()
    del run
    gc.collect()  # warnings are errors, also those that are raised here
