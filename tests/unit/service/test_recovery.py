"""Runs whose process is gone are found, and continued once; what cannot be continued safely is not."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, Any, TypedDict

import pytest

from perdure import START, InMemorySaver, Pregel, StateGraph, recover
from perdure.errors import InvalidPayloadError, RecoveryRefusedError
from perdure.testing.clock import FakeClock


class State(TypedDict):
    log: Annotated[list[str], operator.add]


class Scene:
    """Processes that die when told so, on one store and one clock."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.saver = InMemorySaver(clock=self.clock)
        self.entered = asyncio.Event()
        self.stuck = True
        self.fail = False

    def graph(self, *, name: str | None = "mine", nodes: tuple[str, ...] = ("one", "two")) -> Pregel:
        builder = StateGraph(State)
        before = START
        for node in nodes:
            builder.add_node(node, self._node(node)).add_edge(before, node)
            before = node
        return builder.compile(self.saver, name=name, clock=self.clock)

    def _node(self, name: str) -> Any:
        async def node(state: State) -> dict[str, list[str]]:
            if name == "two":
                self.entered.set()
                if self.stuck:
                    await asyncio.get_running_loop().create_future()
                if self.fail:
                    raise ValueError("broken")
            return {"log": [name]}

        return node

    async def orphan(self, graph: Pregel, thread: str = "t") -> None:
        """Leave a run behind as a dead process does: nobody ends it, and its lease runs out."""
        run = asyncio.create_task(
            graph.ainvoke({"log": ["input"]}, {"configurable": {"thread_id": thread}}, durability="sync")
        )
        await self.entered.wait()
        self.entered.clear()

        async def dead(*arguments: Any) -> None:
            raise ConnectionError("this process is dead")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.saver, "acommit", dead)
            patch.setattr(self.saver, "arelease", dead)
            run.cancel()
            await asyncio.wait([run])
        self.clock.advance(31)
        self.stuck = False


async def test_an_orphan_goes_on_from_its_last_superstep() -> None:
    scene = Scene()
    graph = scene.graph()
    await scene.orphan(graph)
    (recovered,) = await recover(graph)
    assert recovered.output == {"log": ["input", "one", "two"]}
    assert recovered.error is None
    assert await recover(graph) == []


async def test_two_recoverers_continue_each_run_once() -> None:
    scene = Scene()
    graph = scene.graph()
    for thread in ("a", "b", "c"):
        scene.stuck = True
        await scene.orphan(graph, thread)
    both = await asyncio.gather(recover(graph), recover(graph))
    assert sorted(found.thread_id for half in both for found in half) == ["a", "b", "c"]


async def test_a_run_that_fails_again_is_told_and_does_not_stop_the_others() -> None:
    scene = Scene()
    graph = scene.graph()
    await scene.orphan(graph, "a")
    scene.stuck = True
    await scene.orphan(graph, "b")
    scene.fail = True
    recovered = await recover(graph)
    assert sorted(outcome.thread_id for outcome in recovered) == ["a", "b"]
    assert [str(outcome.error) for outcome in recovered] == ["broken", "broken"]


async def test_the_runs_of_another_graph_are_left_alone() -> None:
    scene = Scene()
    await scene.orphan(scene.graph())
    assert await recover(scene.graph(name="yours")) == []
    assert len(await recover(scene.graph())) == 1


async def test_graphs_without_a_name_take_only_runs_of_graphs_that_look_alike() -> None:
    scene = Scene()
    await scene.orphan(scene.graph(name=None))
    assert await recover(scene.graph(name=None, nodes=("one", "two", "three"))) == []
    assert len(await recover(scene.graph(name=None))) == 1


async def test_a_run_whose_trigger_was_lost_is_not_taken_for_one_that_is_done() -> None:
    scene = Scene()
    graph = scene.graph()
    await scene.orphan(graph)
    shelf = scene.saver._threads["t"].shelves[""]
    del shelf.blobs["branch:to:two"]
    (recovered,) = await recover(graph)
    assert isinstance(recovered.error, InvalidPayloadError)
    assert "lists channel 'branch:to:two' with version" in str(recovered.error)
    assert "other than the saver has deleted rows of this thread." in str(recovered.error)


@pytest.mark.parametrize("checkpointer", [None, False])
async def test_of_a_graph_that_keeps_nothing_nothing_can_be_recovered(checkpointer: bool | None) -> None:
    builder = StateGraph(State).add_node("a", lambda state: None).add_edge(START, "a")
    graph = builder.compile(checkpointer, name="mine")

    with pytest.raises(RecoveryRefusedError, match="has no checkpointer, so nothing of its runs is stored"):
        await recover(graph)
