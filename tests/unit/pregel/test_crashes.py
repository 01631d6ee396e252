"""The traces of a killed run, and its continuation by `recover` or by no input."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError, model_validator

from perdure.checkpoint.base import Commit, Orphan
from perdure.config import RunnableConfig
from perdure.constants import START
from perdure.data import Command, Durability
from perdure.errors import MissingNodeError, ThreadBusyError
from perdure.graph.state import StateGraph
from perdure.pregel.graph import Pregel
from perdure.runtime import Runtime
from perdure.service.recovery import recover
from perdure.testing.clock import FakeClock
from tests.unit.pregel.graphs import Gate, Log, Runs, chain, fails, logs, thread
from tests.unit.pregel.savers import WatchedSaver


class Scene:
    """A store and a clock on which processes die."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.saver = WatchedSaver(self.clock)
        self.runs = Runs()

    def graph(self, *names: str, **actions: Callable[[Any], Awaitable[Any]]) -> Pregel:
        """Build a chain that counts the bodies of its nodes."""
        counted = {name: self.runs.counted(name, actions.get(name)) for name in names}
        return chain(names, counted).compile(checkpointer=self.saver, name="mine", clock=self.clock)

    async def kill(self, run: asyncio.Task[Any], gate: Gate) -> Orphan:
        """End a run that waits in `gate` as a dying process would: it stores nothing more."""
        await gate.entered.wait()
        for _ in range(30):
            await asyncio.sleep(0)
        self.saver.dead = True
        self.saver.before_commit = _dead
        run.cancel()
        await asyncio.wait([run])
        self.saver.dead = False
        self.saver.before_commit = None
        self.clock.advance(31)
        self.runs.of.clear()
        [orphan] = await self.saver.aorphans()
        return orphan


async def _dead(commit: Commit) -> None:
    raise ConnectionError("this process is dead")


async def by_recover(graph: Pregel) -> Any:
    [recovered] = await recover(graph)
    return recovered.output


async def by_no_input(graph: Pregel) -> Any:
    return await graph.ainvoke(None, thread())


HOW = pytest.mark.parametrize("goes_on", [by_recover, by_no_input])
GoesOn = Callable[[Pregel], Awaitable[Any]]


async def _after_a(scene: Scene) -> dict[str, Any]:
    """Run a thread to its end, and return the config of its checkpoint after node a."""
    graph = scene.graph("a", "b", "c")
    await graph.ainvoke({"log": ["first"]}, thread())
    stored = [checkpoint async for checkpoint in scene.saver.alist(thread())]
    [found] = [dict(checkpoint.config) for checkpoint in stored if checkpoint.metadata["step"] == 1]
    return found


@HOW
async def test_a_run_that_began_at_an_older_checkpoint_continues_from_what_it_stored(goes_on: GoesOn) -> None:
    scene, gate = Scene(), Gate()
    older = await _after_a(scene)
    dying = scene.graph("a", "b", "c", c=gate)
    orphan = await scene.kill(
        asyncio.create_task(dying.ainvoke({"log": ["second"]}, older, durability="sync")), gate
    )

    assert orphan.started
    assert (await goes_on(scene.graph("a", "b", "c")))["log"] == ["first", "a", "second", "a", "b", "c"]
    assert scene.runs.of == {"c": 1}


@HOW
@pytest.mark.parametrize("durability", ["sync", "exit"])
@pytest.mark.parametrize(
    ("given", "stuck", "left"),
    [({"log": ["second"]}, "a", ["second", "a", "b", "c"]), (None, "b", ["b", "c"])],
)
async def test_a_run_that_began_at_an_older_checkpoint_and_stored_nothing_begins_there_again(
    goes_on: GoesOn, given: Any, stuck: str, left: list[str], durability: Durability
) -> None:
    scene, gate = Scene(), Gate()
    older = await _after_a(scene)
    dying = scene.graph("a", "b", "c", **{stuck: gate})
    orphan = await scene.kill(asyncio.create_task(dying.ainvoke(given, older, durability=durability)), gate)
    result = await goes_on(scene.graph("a", "b", "c"))

    assert not orphan.started
    assert result["log"] == ["first", "a", *left]
    assert [node for node in left if node != "second"] == list(scene.runs.of)


@HOW
async def test_a_fork_without_input_continues_from_what_it_stored(goes_on: GoesOn) -> None:
    scene, gate = Scene(), Gate()
    older = await _after_a(scene)
    dying = scene.graph("a", "b", "c", c=gate)
    await scene.kill(asyncio.create_task(dying.ainvoke(None, older, durability="sync")), gate)

    assert (await goes_on(scene.graph("a", "b", "c")))["log"] == ["first", "a", "b", "c"]
    assert scene.runs.of == {"c": 1}


@HOW
@pytest.mark.parametrize("known", [False, True], ids=["new thread", "known thread"])
@pytest.mark.parametrize(("durability", "stuck"), [("sync", "a"), ("exit", "a"), ("exit", "b")])
async def test_a_run_that_stored_nothing_is_continued_from_its_recorded_input(
    goes_on: GoesOn, known: bool, durability: Durability, stuck: str
) -> None:
    scene, gate = Scene(), Gate()
    before = (await scene.graph("a", "b").ainvoke({"log": ["first"]}, thread()))["log"] if known else []
    dying = scene.graph("a", "b", **{stuck: gate})
    orphan = await scene.kill(
        asyncio.create_task(dying.ainvoke({"log": ["given"]}, thread(), durability=durability)), gate
    )
    result = await goes_on(scene.graph("a", "b"))

    assert not orphan.started
    assert result["log"] == [*before, "given", "a", "b"]
    assert scene.runs.of == {"a": 1, "b": 1}
    assert (scene.saver.claims[-1].run_id, scene.saver.claims[-1].durability) == (orphan.run_id, durability)
    assert await scene.saver.aorphans() == []


async def test_a_new_input_does_not_continue_the_killed_run() -> None:
    scene, gate = Scene(), Gate()
    dying = scene.graph("a", a=gate)
    orphan = await scene.kill(asyncio.create_task(dying.ainvoke({"log": ["lost"]}, thread())), gate)

    assert (await scene.graph("a").ainvoke({"log": ["new"]}, thread()))["log"] == ["new", "a"]
    assert scene.saver.claims[-1].run_id != orphan.run_id


async def test_a_run_whose_own_node_finds_a_thread_busy_is_reported() -> None:
    scene, gate = Scene(), Gate()
    await scene.kill(asyncio.create_task(scene.graph("a", a=gate).ainvoke({}, thread())), gate)
    busy = ThreadBusyError("Thread 'other' is held")
    [recovered] = await recover(scene.graph("a", a=fails(busy)))

    assert recovered.error is busy
    assert (recovered.thread_id, recovered.output) == ("t", None)


async def test_a_run_that_cannot_be_opened_here_stays_an_orphan_for_those_who_can() -> None:
    scene, gate = Scene(), Gate()
    dying = scene.graph("a", "b", b=gate)
    orphan = await scene.kill(asyncio.create_task(dying.ainvoke({}, thread(), durability="sync")), gate)
    [refused] = await recover(scene.graph("a", "renamed"))
    scene.clock.advance(31)
    [recovered] = await recover(scene.graph("a", "b"))

    assert isinstance(refused.error, MissingNodeError)
    assert "stays an orphan" in refused.error.__notes__[-1]
    assert (recovered.run_id, recovered.output) == (orphan.run_id, {"log": ["a", "b"]})


async def test_a_run_that_is_cancelled_during_its_only_commit_leaves_no_results_in_the_void() -> None:
    scene = Scene()
    sent: list[asyncio.Task[Any]] = []

    async def cancels_once(commit: Commit) -> None:
        if len(scene.saver.sent) == 1:
            sent[0].cancel()
            await asyncio.sleep(0)

    async def reads(state: Log) -> Any:
        return {"log": ["a"]}

    scene.saver.before_commit = cancels_once
    graph = scene.graph("a", a=reads)
    sent.append(asyncio.create_task(graph.ainvoke({}, thread(), durability="exit")))
    with pytest.raises(asyncio.CancelledError):
        await sent[0]
    shelf = scene.saver._threads["t"].shelves[""]

    assert set(shelf.writes) <= set(shelf.checkpoints)
    assert (await graph.aget_state(thread())).values["log"] == ["a"]
    assert await scene.graph("a", a=logs("a")).ainvoke({}, thread()) == {"log": ["a", "a"]}


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_a_run_that_is_cancelled_during_its_last_commit_is_not_told_that_it_was_lost(
    durability: Durability,
) -> None:
    scene = Scene()
    sent: list[asyncio.Task[Any]] = []

    async def cancels_at_the_end(commit: Commit) -> None:
        if commit.end is not None and not sent[0].cancelling():
            sent[0].cancel()
            await asyncio.sleep(0)

    scene.saver.before_commit = cancels_at_the_end
    graph = scene.graph("a", a=logs("a"))
    sent.append(asyncio.create_task(graph.ainvoke({}, thread(), durability=durability)))
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await sent[0]

    assert getattr(cancelled.value, "__notes__", []) == []
    assert (await graph.aget_state(thread())).values["log"] == ["a"]
    assert await graph.ainvoke({}, thread()) == {"log": ["a", "a"]}


@pytest.mark.parametrize("way", ["recover", "no input"])
async def test_a_continued_run_is_called_as_it_was(way: str) -> None:
    scene, gate, seen = Scene(), Gate(), list[Any]()

    async def looks(state: Log, config: RunnableConfig, runtime: Runtime[Any]) -> Any:
        said = config["configurable"]
        seen.append({"user": said["user"], "tags": config["tags"], "context": runtime.context})
        assert said.keys() == {"thread_id", "checkpoint_ns", "checkpoint_id", "user"}

    def graph(first: Any) -> Pregel:
        builder = StateGraph(Log).add_node("a", first).add_node("b", looks)
        builder.add_edge(START, "a").add_edge("a", "b")
        return builder.compile(checkpointer=scene.saver, name="mine", clock=scene.clock)

    config = {
        "configurable": {"thread_id": "t", "user": {"id": 7}, "client": object()},
        "tags": ["mine"],
    }
    run = graph(gate).ainvoke({}, config, interrupt_before=["c"], context="c", durability="sync")
    await scene.kill(asyncio.create_task(run), gate)
    if way == "recover":
        [recovered] = await recover(graph(logs("a")), context=lambda orphan: f"for {orphan.thread_id}")
        assert recovered.output == {"log": ["a"]}
    else:
        assert await graph(logs("a")).ainvoke(None, thread(), context="for t") == {"log": ["a"]}

    assert seen == [{"user": {"id": 7}, "tags": ["mine"], "context": "for t"}]


@HOW
async def test_an_orphan_whose_state_no_node_can_be_given_ends_as_it_would_have(goes_on: GoesOn) -> None:
    """Continue an orphan whose state a schema refuses. That error is the run's end, and frees the thread."""

    class Checked(BaseModel):
        x: int = 0

        @model_validator(mode="after")
        def small(self) -> Checked:
            if self.x > 1:
                raise ValueError("too big")
            return self

    async def grow(state: Any) -> Any:
        return {"x": 5}

    async def after(state: Checked) -> None: ...

    scene = Scene()
    builder = StateGraph(Checked).add_node("grow", grow).add_node("after", after)
    builder.add_edge(START, "grow").add_edge("grow", "after")
    graph = builder.compile(checkpointer=scene.saver, name="mine", clock=scene.clock)

    async def dies_after_the_superstep(commit: Commit) -> None:
        if commit.end is not None:
            raise ConnectionError("this process is dead")

    scene.saver.before_commit, scene.saver.dead = dies_after_the_superstep, True
    with pytest.raises(ValidationError, match="too big"):
        await graph.ainvoke({"x": 1}, thread(), durability="sync")
    scene.saver.before_commit, scene.saver.dead = None, False
    scene.clock.advance(31)
    assert len(await scene.saver.aorphans()) == 1

    if goes_on is by_recover:
        [recovered] = await recover(graph)
        assert isinstance(recovered.error, ValidationError)
    else:
        with pytest.raises(ValidationError, match="too big"):
            await graph.ainvoke(None, thread())
    scene.clock.advance(31)
    assert await scene.saver.aorphans() == []
    assert (await graph.aget_state(thread())).values == {"x": 5}
    assert await graph.ainvoke(Command(update={"x": 0}), thread()) == {"x": 0}
