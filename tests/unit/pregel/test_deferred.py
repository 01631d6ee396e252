"""Deferred nodes run when nothing else is left to do, also across crashes and changes of the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any, TypedDict

import pytest

from perdure.channels import LastValueAfterFinish
from perdure.checkpoint.base import Commit
from perdure.constants import END, START
from perdure.data import Command, Durability, Send
from perdure.errors import MissingNodeError
from perdure.graph.state import StateGraph
from perdure.pregel.step.apply import apply
from perdure.pregel.step.prepare import prepare
from perdure.pregel.step.state import ThreadState
from perdure.testing.clock import FakeClock
from tests.unit.pregel.graphs import Action, Log, Runs, chain, fan, logs, returns, thread
from tests.unit.pregel.savers import WatchedSaver
from tests.unit.pregel.step.test_apply import finished
from tests.unit.pregel.step.test_prepare import superstep

MODES = pytest.mark.parametrize("durability", ["sync", "async", "exit"])
TOGGLES = pytest.mark.parametrize(("before", "after"), [((), ("d",)), (("d",), ())])


def defer(builder: StateGraph, *names: str) -> StateGraph:
    for name in names:
        builder.nodes[name] = replace(builder.nodes[name], defer=True)
    return builder


async def ran(builder: StateGraph) -> list[str]:
    log: list[str] = (await builder.compile().ainvoke({}))["log"]
    return log


class Broken:
    """A node that fails until it is mended."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.mended = False

    async def __call__(self, state: Log) -> Any:
        if not self.mended:
            raise ValueError(self.name)
        return {"log": [self.name]}


# When they run


async def test_an_input_that_starts_only_a_deferred_node_runs_it() -> None:
    assert await ran(defer(chain(["d", "after"]), "d")) == ["d", "after"]


async def test_it_runs_once_after_paths_of_different_length() -> None:
    builder = chain(["a", "b", "c"]).add_node("d", logs("d"))
    for name in "abc":
        builder.add_edge(name, "d")

    assert await ran(defer(builder, "d")) == ["a", "b", "c", "d"]


async def test_all_that_wait_run_in_one_superstep() -> None:
    builder = fan(["d2", "d1"]).add_node("a", logs("a")).add_edge(START, "a")
    graph = defer(builder, "d1", "d2").compile()
    events = [event async for event in graph.astream({}, stream_mode="values")]

    assert [event["log"] for event in events] == [["a"], ["a", "d1", "d2"]]


async def test_it_waits_for_sends_and_for_what_they_lead_to() -> None:
    sends: Any = [Send("s", 1), Send("s", 2)]
    builder = fan(["a", "d"], {"a": returns([*sends])}).add_node("s", logs("s"))
    builder.add_node("t", logs("t")).add_edge("s", "t")

    assert await ran(defer(builder, "d")) == ["s", "s", "t", "d"]


async def test_triggered_again_it_waits_again() -> None:
    builder = chain(["d", "a", "b"]).add_conditional_edges(
        "a", lambda state: "d" if state["log"].count("d") < 3 else END
    )

    assert await ran(defer(builder, "d")) == ["d", "a", "b", "d", "a", "b", "d", "a", "b"]


async def test_one_deferred_node_that_triggers_another_has_it_wait_for_the_rest() -> None:
    builder = fan(["d1", "d2"]).add_edge("d1", "d2").add_node("a", logs("a")).add_edge("d1", "a")

    assert await ran(defer(builder, "d1", "d2")) == ["d1", "d2", "a", "d2"]


async def test_a_deferred_join_waits_for_all_its_starts_and_then_for_everything_else() -> None:
    builder = chain(["a", "x", "y"]).add_node("b", logs("b")).add_edge(START, "b")
    builder.add_node("d", logs("d")).add_edge(["a", "b"], "d")

    assert await ran(builder) == ["a", "b", "d", "x", "y"]
    assert await ran(defer(builder, "d")) == ["a", "b", "x", "y", "d"]


async def test_a_deferred_join_that_is_not_complete_is_not_released() -> None:
    builder = chain(["a"]).add_node("b", logs("b")).add_node("d", logs("d")).add_edge(["a", "b"], "d")

    assert await ran(defer(builder, "d")) == ["a"]


async def test_a_send_to_a_deferred_node_runs_at_once() -> None:
    builder = chain(["a", "b"], {"a": returns([Send("d", {})])}).add_node("d", logs("d"))

    assert await ran(defer(builder, "d")) == ["b", "d"]


async def test_a_command_to_a_deferred_node_waits() -> None:
    builder = chain(["a", "b", "c"], {"a": returns(Command(goto="d"))}).add_node("d", logs("d"))

    assert await ran(defer(builder, "d")) == ["b", "c", "d"]


# The pure function


class Fails(LastValueAfterFinish[int]):
    """A channel that cannot finish."""

    def finish(self) -> bool:
        raise ZeroDivisionError("in finish")


class Unfinished(TypedDict, total=False):
    x: int
    zz: Annotated[int, Fails]


def test_what_was_released_is_held_back_again_if_the_rest_of_it_fails() -> None:
    builder = StateGraph(Unfinished).add_node("a", returns(None)).add_node("d", returns(None))
    plan = defer(builder.add_edge(START, "a").add_edge("a", "d"), "d").compile().plan
    state = ThreadState(plan)
    with pytest.raises(ZeroDivisionError, match="in finish"):
        apply(state, [finished(plan, "a", [("x", 1), ("branch:to:d", None)])], "c1")

    assert not state.available("branch:to:d")
    assert (state.stored("branch:to:d"), state.read(), state.versions) == (
        ThreadState(plan).stored("branch:to:d"),
        {},
        {},
    )


def test_what_is_released_has_the_version_of_the_superstep_that_released_it() -> None:
    plan = defer(chain(["a", "b"]).add_node("d", logs("d")).add_edge("a", "d"), "d").compile().plan
    state = ThreadState(plan)
    first = apply(state, [finished(plan, "a", [("branch:to:b", None), ("branch:to:d", None)])], "c1")
    held = state.versions["branch:to:d"]
    second = apply(state, [finished(plan, "b", [("log", ["b"])])], "c2")

    assert "branch:to:d" in first.changed
    assert (held, state.versions["branch:to:d"]) == ("0000000001.c1", "0000000002.c2")
    assert second.updated == ["log", "branch:to:d"]


def test_a_node_released_in_the_superstep_that_triggered_it_has_the_id_that_a_resume_gives_it() -> None:
    plan = defer(fan(["d"]), "d").compile().plan
    state = ThreadState(plan)
    updated = apply(state, [finished(plan, START, [("branch:to:d", None)])], "c1").updated
    [known], [unknown] = prepare(plan, state, updated, superstep()), prepare(plan, state, None, superstep())

    assert (known.triggers, known.id) == (("branch:to:d",), unknown.id)


# On a stored thread


@MODES
async def test_a_resumed_run_still_waits_and_the_snapshot_does_not_name_what_waits(
    durability: Durability,
) -> None:
    broken = Broken("b")
    builder = chain(["a", "b", "c"], {"b": broken}).add_node("d", logs("d")).add_edge("a", "d")
    graph = defer(builder, "d").compile(checkpointer=WatchedSaver())
    with pytest.raises(ValueError, match="b"):
        await graph.ainvoke({}, thread(), durability=durability)
    snapshot = await graph.aget_state(thread())
    broken.mended = True

    assert (snapshot.next, snapshot.values) == (("b",), {"log": ["a"]})
    assert (await graph.ainvoke(None, thread()))["log"] == ["a", "b", "c", "d"]
    assert (await graph.aget_state(thread())).next == ()


@MODES
async def test_a_deferred_node_that_was_released_and_failed_runs_again_and_not_its_sibling(
    durability: Durability,
) -> None:
    broken, runs = Broken("d"), Runs()

    async def late(state: Log) -> Any:
        # Fails after its sibling, which needs no turn of the loop, has finished.
        return await broken(state)

    builder = fan(["a", "c", "d"], {"c": runs.counted("c"), "d": late})
    graph = defer(builder, "c", "d").compile(checkpointer=WatchedSaver())
    with pytest.raises(ValueError, match="d"):
        await graph.ainvoke({}, thread(), durability=durability)
    snapshot = await graph.aget_state(thread())
    broken.mended = True

    assert snapshot.next == ("d",)
    assert (await graph.ainvoke(None, thread()))["log"] == ["a", "c", "d"]
    assert runs.of == {"c": 1}


async def test_a_new_input_drops_what_waited_and_half_a_join_stays() -> None:
    broken = Broken("b")
    builder = fan(["a", "b"], {"b": broken}).add_node("d", logs("d")).add_node("j", logs("j"))
    builder.add_conditional_edges("a", lambda state: ["d", "x"] if len(state["log"]) == 1 else "x")
    builder.add_node("x", logs("x")).add_edge("x", "b").add_edge(["x", "b"], "j")
    builder.edges.discard((START, "b"))
    graph = defer(builder, "d", "j").compile(checkpointer=WatchedSaver())
    with pytest.raises(ValueError, match="b"):
        await graph.ainvoke({}, thread())
    broken.mended = True

    assert (await graph.ainvoke({}, thread()))["log"] == ["a", "x", "a", "x", "b", "j"]


async def test_a_waiting_deferred_node_that_is_gone_is_named() -> None:
    for edges in [("a",), (["a", "c"],)]:
        saver = WatchedSaver()
        builder = fan(["a", "c"]).add_node("b", Broken("b")).add_edge("a", "b").add_node("d", logs("d"))
        for start in edges:
            builder.add_edge(start, "d")
        with pytest.raises(ValueError, match="b"):
            await defer(builder, "d").compile(checkpointer=saver).ainvoke({}, thread())
        renamed = fan(["a", "c"]).add_node("b", logs("b")).add_edge("a", "b").compile(checkpointer=saver)

        assert (await renamed.aget_state(thread())).next == ("b", "d")
        with pytest.raises(MissingNodeError, match="waits on node 'd'"):
            await renamed.ainvoke(None, thread())


async def test_half_a_deferred_join_whose_node_is_gone_does_not_count_as_waiting() -> None:
    saver = WatchedSaver()
    builder = fan(["a"]).add_node("b", Broken("b")).add_edge("a", "b").add_node("d", logs("d"))
    with pytest.raises(ValueError, match="b"):
        await defer(builder.add_edge(["a", "b"], "d"), "d").compile(checkpointer=saver).ainvoke({}, thread())
    without = fan(["a"]).add_node("b", logs("b")).add_edge("a", "b").compile(checkpointer=saver)

    assert (await without.ainvoke(None, thread()))["log"] == ["a", "b"]


@pytest.mark.parametrize("deferred", [(), ("d",)])
async def test_a_join_that_two_of_three_have_reached_keeps_them_across_a_crash(
    deferred: Sequence[str],
) -> None:
    clock, runs = FakeClock(), Runs()
    saver = WatchedSaver(clock)
    builder = fan(["a", "b", "x"], {name: runs.counted(name) for name in "abx"})
    builder.add_node("c", runs.counted("c")).add_edge("x", "c")
    builder.add_node("d", runs.counted("d")).add_edge(["a", "b", "c"], "d")
    graph = defer(builder, *deferred).compile(checkpointer=saver, clock=clock)

    async def killed_after_the_first_superstep(commit: Commit) -> None:
        if any(row.metadata["step"] > 1 for row in commit.checkpoints):
            raise ConnectionError("killed")

    saver.before_commit, saver.dead = killed_after_the_first_superstep, True
    with pytest.raises(ConnectionError):
        await graph.ainvoke({}, thread(), durability="sync")
    saver.before_commit, saver.dead = None, False
    clock.advance(saver.lease_seconds)
    [orphan] = await saver.aorphans()

    assert (await graph.acontinue(orphan))["log"] == ["a", "b", "x", "c", "d"]
    assert [runs.of[name] for name in "abx"] == [1, 1, 1]


# Deferred only since, or no longer


def half_arrived(broken: Action, runs: Runs) -> StateGraph:
    """Build a join of a and b into d, at which a has arrived when b fails in the next superstep."""
    builder = fan(["a", "x"], {"a": runs.counted("a")})
    builder.add_node("b", broken).add_edge("x", "b")
    return builder.add_node("d", runs.counted("d")).add_edge(["a", "b"], "d")


def fully_arrived(broken: Action, runs: Runs) -> StateGraph:
    """Build a join at which both have arrived when b fails later: d has waited for b, or run beside it."""
    builder = fan(["a", "x"], {"a": runs.counted("a")})
    builder.add_node("b", broken).add_edge("x", "b")
    return builder.add_node("d", runs.counted("d")).add_edge(["a", "x"], "d")


def by_an_edge(broken: Action, runs: Runs) -> StateGraph:
    builder = fan(["a"], {"a": runs.counted("a")})
    builder.add_node("b", broken).add_edge("a", "b")
    return builder.add_node("d", runs.counted("d")).add_edge("a", "d")


@MODES
@TOGGLES
@pytest.mark.parametrize("build", [half_arrived, fully_arrived, by_an_edge])
async def test_whatever_is_toggled_while_it_waits_the_node_runs_once(
    build: Callable[[Action, Runs], StateGraph],
    before: Sequence[str],
    after: Sequence[str],
    durability: Durability,
) -> None:
    broken, runs, saver = Broken("b"), Runs(), WatchedSaver()
    old = defer(build(broken, runs), *before).compile(checkpointer=saver)
    with pytest.raises(ValueError, match="b"):
        await old.ainvoke({}, thread(), durability=durability)
    broken.mended = True
    new = defer(build(broken, runs), *after).compile(checkpointer=saver)
    log = (await new.ainvoke(None, thread(), durability=durability))["log"]

    assert sorted(log).count("d") == 1
    assert runs.of["a"] == 1
    assert runs.of["d"] == 1
    assert (await new.aget_state(thread())).next == ()


@TOGGLES
async def test_a_node_that_was_about_to_run_and_is_toggled_runs_at_once(
    before: Sequence[str], after: Sequence[str]
) -> None:
    broken, saver = Broken("d"), WatchedSaver()
    builder = chain(["a", "d", "after"], {"d": broken})
    with pytest.raises(ValueError, match="d"):
        await defer(builder, *before).compile(checkpointer=saver).ainvoke({}, thread())
    broken.mended = True
    new = defer(chain(["a", "d", "after"], {"d": broken}), *after).compile(checkpointer=saver)

    assert (await new.aget_state(thread())).next == ("d",)
    assert (await new.ainvoke(None, thread()))["log"] == ["a", "d", "after"]
    assert (await new.ainvoke({}, thread()))["log"] == ["a", "d", "after"] * 2


@TOGGLES
async def test_toggling_does_not_make_it_another_graph_to_recovery(
    before: Sequence[str], after: Sequence[str]
) -> None:
    builder = fan(["a", "d"]).add_node("b", logs("b")).add_edge(["a", "d"], "b")
    one = defer(fan(["a", "d"]).add_node("b", logs("b")).add_edge(["a", "d"], "b"), *before).compile().plan

    assert one.signature == defer(builder, *after, "b").compile().plan.signature
    assert one.signature != fan(["a", "d"]).add_node("b", logs("b")).compile().plan.signature
