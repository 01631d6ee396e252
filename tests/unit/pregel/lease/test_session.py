"""The commits of a run, their moments, and the effects of a slow or broken saver."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from perdure.checkpoint.base import Commit, RunEnd, WriteRow
from perdure.constants import NO_WRITES
from perdure.data import Command, Durability, Send
from perdure.errors import SaverUnavailableError, UnserializableValueError
from perdure.pregel.graph import Pregel
from perdure.pregel.lease.commit_line import CommitLine, merge
from tests.unit.pregel.graphs import Gate, Log, Runs, chain, fails, fan, logs, returns, thread
from tests.unit.pregel.savers import Brake, WatchedSaver, refuse

MODES = pytest.mark.parametrize("durability", ["sync", "async", "exit"])


def chain_of(length: int, saver: WatchedSaver, runs: Runs | None = None) -> Pregel:
    names = [f"n{i}" for i in range(length)]
    counted = runs or Runs()
    return chain(names, {name: counted.counted(name) for name in names}).compile(checkpointer=saver)


async def settle() -> None:
    """Let all tasks of the loop run until they wait."""
    for _ in range(50):
        await asyncio.sleep(0)


async def failing(graph: Pregel, error: type[Exception], **more: Any) -> Exception:
    with pytest.raises(error) as raised:
        await graph.ainvoke({}, thread(), **more)
    return raised.value


# How many commits


@MODES
@pytest.mark.parametrize("length", [1, 2, 7])
async def test_a_run_of_n_supersteps_is_one_claim_and_at_most_n_plus_one_commits(
    length: int, durability: Durability
) -> None:
    saver = WatchedSaver()
    await chain_of(length, saver).ainvoke({}, thread(), durability=durability)

    assert len(saver.claims) == 1
    assert len(saver.sent) <= length + 1
    assert saver.sent[-1].end == RunEnd(status="success")
    assert [commit.end for commit in saver.sent[:-1]] == [None] * (len(saver.sent) - 1)


@pytest.mark.parametrize("width", [2, 100])
@pytest.mark.parametrize("durability", ["sync", "async"])
async def test_tasks_that_end_together_are_one_commit_with_their_superstep(
    width: int, durability: Durability
) -> None:
    saver = WatchedSaver()
    sends = [Send("b", n) for n in range(width)]
    graph = (
        chain(["a"], {"a": returns(Command(goto=sends))}).add_node("b", logs("b")).compile(checkpointer=saver)
    )
    await graph.ainvoke({}, thread(), durability=durability)

    assert len(saver.sent) == 2
    assert (
        len({row.task_id for commit in saver.sent for row in commit.writes if row.channel == "log"}) == width
    )
    if durability == "sync":
        assert len({row.task_id for row in saver.sent[-1].writes}) == width
        assert saver.sent[-1].checkpoints


@pytest.mark.parametrize("durability", ["sync", "async"])
async def test_tasks_that_end_early_are_stored_while_their_siblings_run_in_groups(
    durability: Durability,
) -> None:
    saver, gate = WatchedSaver(), Gate()
    early = [f"early{i}" for i in range(5)]
    graph = fan([*early, "gate"], {"gate": gate}).compile(checkpointer=saver)
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: graph.ainvoke({}, thread(), durability=durability))
        await gate.entered.wait()
        await settle()
        stored = {
            row.task_path.split()[-1] for c in saver.acknowledged for row in c.writes if row.channel == "log"
        }
        commits = len(saver.acknowledged)
        gate.open.set()

    assert stored == set(early)
    assert commits <= 2


async def test_every_task_is_stored_once() -> None:
    saver, gate = WatchedSaver(), Gate({"log": ["gate"]})
    graph = fan(["a", "gate"], {"gate": gate}).compile(checkpointer=saver)
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: graph.ainvoke({}, thread()))
        await gate.entered.wait()
        await settle()
        gate.open.set()
    rows = [(row.task_id, row.idx) for commit in saver.sent for row in commit.writes]

    assert len(rows) == len(set(rows))


@MODES
async def test_a_node_that_wrote_nothing_is_stored_as_finished(durability: Durability) -> None:
    saver, runs = WatchedSaver(), Runs()
    actions = {"quiet": runs.counted("quiet", returns(None)), "bad": fails(ValueError("boom"))}
    graph = fan(["quiet", "bad"], {**actions, "bad": _late(actions["bad"])}).compile(checkpointer=saver)
    await failing(graph, ValueError, durability=durability)

    assert [row.channel for commit in saver.sent for row in commit.writes if row.idx == 0][-1] == NO_WRITES
    await failing_resume(graph, durability)
    assert runs.of == {"quiet": 1}


def _late(action: Any) -> Any:
    async def body(state: Log) -> Any:
        await settle()
        return await action(state)

    return body


async def failing_resume(graph: Pregel, durability: Durability) -> None:
    with pytest.raises(ValueError, match="boom"):
        await graph.ainvoke(None, thread(), durability=durability)


# When the next superstep may start


async def test_in_sync_the_next_superstep_waits_for_the_acknowledgement() -> None:
    saver, runs = WatchedSaver(), Runs()
    brake, graph = Brake(saver), chain_of(3, saver, runs)
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: graph.ainvoke({}, thread(), durability="sync"))
        await brake.held.wait()
        await settle()
        assert set(runs.of) == {"n0"}
        brake.released.set()

    assert set(runs.of) == {"n0", "n1", "n2"}


async def test_in_async_at_most_two_finished_supersteps_are_unacknowledged() -> None:
    saver, runs = WatchedSaver(), Runs()
    brake, graph = Brake(saver), chain_of(300, saver, runs)
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: graph.ainvoke({}, thread()))
        await brake.held.wait()
        await settle()
        # n0 and n1 have finished and are not acknowledged, so n2 does not start.
        assert set(runs.of) == {"n0", "n1"}
        brake.released.set()

    assert len(runs.of) == 300
    assert saver.steps() == list(range(-1, 301))


async def test_in_async_commits_are_in_flight_while_the_next_superstep_runs() -> None:
    saver, gate = WatchedSaver(), Gate()
    graph = chain(["a", "gate"], {"gate": gate}).compile(checkpointer=saver)
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: graph.ainvoke({}, thread()))
        await gate.entered.wait()
        await settle()
        assert saver.steps() == [-1, 0, 1]
        gate.open.set()


async def test_a_task_write_is_never_stored_after_the_checkpoint_that_supersedes_it() -> None:
    saver = WatchedSaver()
    await chain_of(5, saver).ainvoke({}, thread(), durability="sync")
    superseded: set[str] = set()
    for commit in saver.sent:
        assert superseded.isdisjoint(row.checkpoint_id for row in commit.writes)
        superseded.update(row.parent_id for row in commit.checkpoints if row.parent_id)


# Exit


async def test_exit_stores_one_checkpoint_at_the_end_and_nothing_before() -> None:
    saver = WatchedSaver()
    graph = chain_of(5, saver)
    await graph.ainvoke({}, thread(), durability="exit")
    first = [checkpoint async for checkpoint in saver.alist(thread())]
    await graph.ainvoke({}, thread(), durability="exit")
    both = [checkpoint async for checkpoint in saver.alist(thread())]

    assert [checkpoint.metadata["step"] for checkpoint in both] == [12, 5]
    assert [len(commit.checkpoints) for commit in saver.sent] == [1, 1]
    assert first[0].parent_config is None
    assert both[0].parent_config == first[0].config


async def test_exit_keeps_what_finished_before_a_failure() -> None:
    saver, runs = WatchedSaver(), Runs()
    broken = True

    async def bad(state: Log) -> Any:
        await settle()
        if broken:
            raise ValueError("boom")
        return {"log": ["bad"]}

    builder = chain(["a", "b"], {"a": runs.counted("a"), "b": runs.counted("b")})
    graph = builder.add_node("bad", bad).add_edge("a", "bad").compile(checkpointer=saver)
    await failing(graph, ValueError, durability="exit")
    assert len([checkpoint async for checkpoint in saver.alist(thread())]) == 1
    broken = False

    assert (await graph.ainvoke(None, thread(), durability="exit"))["log"] == ["a", "b", "bad"]
    assert runs.of == {"a": 1, "b": 1}


async def test_exit_that_fails_twice_keeps_what_finished_both_times() -> None:
    saver, runs, left = WatchedSaver(), Runs(), [2]

    async def bad(state: Log) -> Any:
        await settle()
        left[0] -= 1
        if left[0] >= 0:
            raise ValueError("boom")
        return {"log": ["bad"]}

    graph = fan(["a", "bad"], {"a": runs.counted("a"), "bad": bad}).compile(checkpointer=saver)
    await failing(graph, ValueError, durability="exit")
    await failing_resume(graph, "exit")

    assert (await graph.ainvoke(None, thread(), durability="exit"))["log"] == ["a", "bad"]
    assert runs.of == {"a": 1}


# A saver that fails


@pytest.mark.parametrize("durability", ["sync", "async"])
@pytest.mark.parametrize("nth", [1, 2, 3])
async def test_after_a_failed_commit_nothing_later_is_sent(nth: int, durability: Durability) -> None:
    saver = WatchedSaver()
    saver.before_commit = refuse(SaverUnavailableError("gone"), nth=nth)
    error = await failing(chain_of(10, saver), SaverUnavailableError, durability=durability)

    assert str(error) == "gone"
    assert len(saver.sent) == nth
    assert len(saver.acknowledged) == nth - 1


@MODES
async def test_a_run_whose_last_commit_failed_has_not_succeeded(durability: Durability) -> None:
    saver = WatchedSaver()

    async def refuse_the_end(commit: Commit) -> None:
        if commit.end is not None:
            raise SaverUnavailableError("gone")

    saver.before_commit = refuse_the_end
    await failing(chain_of(2, saver), SaverUnavailableError, durability=durability)


async def test_a_node_error_stays_the_error_when_what_finished_cannot_be_stored() -> None:
    saver = WatchedSaver()
    saver.before_commit = refuse(SaverUnavailableError("gone"))
    graph = chain(["a"], {"a": fails(ValueError("boom"))}).compile(checkpointer=saver)
    error = await failing(graph, ValueError)

    assert any("could not be stored" in note and "gone" in note for note in error.__notes__)


async def test_a_send_that_was_cancelled_is_sent_again_with_what_came_after() -> None:
    saver = WatchedSaver()
    brake = Brake(saver)
    line = CommitLine(saver)
    line.put(_commit("first"), superstep=True)
    sender = asyncio.create_task(line.settle())
    await brake.held.wait()
    sender.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sender
    brake.released.set()
    line.put(_commit("second"), superstep=True)
    await line.settle()

    assert [[row.task_id for row in commit.writes] for commit in saver.sent] == [
        ["first"],
        ["first", "second"],
    ]


async def test_many_who_wait_for_one_line_send_it_once() -> None:
    saver = WatchedSaver()
    line = CommitLine(saver)
    async with anyio.create_task_group() as group:
        for name in "abc":
            line.put(_commit(name), superstep=False)
            group.start_soon(line.settle)

    assert len(saver.sent) == 1


async def test_all_who_wait_for_a_line_get_its_failure() -> None:
    saver = WatchedSaver()
    error = SaverUnavailableError("gone")
    saver.before_commit = refuse(error)
    line = CommitLine(saver)
    line.put(_commit("a"), superstep=True)
    results: list[Any] = [*await asyncio.gather(line.settle(), line.settle(), return_exceptions=True)]
    with pytest.raises(SaverUnavailableError):
        await line.settle()

    assert results == [error, error]
    assert len(saver.sent) == 1


def _commit(name: str, **more: Any) -> Commit:
    return Commit(thread_id="t", writes=[WriteRow("", "c", name, "~", 0, "x", b"1")], **more)


def test_merged_commits_keep_their_order_the_greatest_id_and_the_last_end() -> None:
    merged = merge(
        [_commit("a", last_id="2"), _commit("b"), _commit("c", last_id="1", end=RunEnd(status="error"))]
    )

    assert [row.task_id for row in merged.writes] == ["a", "b", "c"]
    assert merged.last_id == "2"
    assert merged.end == RunEnd(status="error")


# Values that cannot be stored


@MODES
async def test_a_value_that_cannot_be_stored_names_its_node_and_key(durability: Durability) -> None:
    graph = chain(["a", "b"], {"b": returns({"y": object()})}).compile(checkpointer=WatchedSaver())
    error = await failing(graph, UnserializableValueError, durability=durability)

    assert "'y'" in str(error)
    if durability != "exit":
        assert "Node 'b' wrote a value to state key 'y' that cannot be stored" in str(error)


@pytest.mark.parametrize("durability", ["sync", "async"])
@pytest.mark.parametrize("last", [False, True], ids=["ends first", "ends last"])
async def test_a_value_that_cannot_be_stored_loses_nothing_else(last: bool, durability: Durability) -> None:
    runs, gate, results = Runs(), Gate(), [{"y": object()}, {"y": 1}]

    async def bad(state: Log) -> Any:
        await settle()
        return results.pop(0)

    names = ["good", "bad"] if last else ["good", "bad", "gate"]
    builder = fan(names, {"good": runs.counted("good"), "bad": bad, "gate": gate})
    graph = builder.compile(checkpointer=WatchedSaver())
    error = await failing(graph, UnserializableValueError, durability=durability)
    assert "Node 'bad' wrote a value to state key 'y'" in str(error)
    state = await graph.aget_state(thread())
    assert state.next == tuple(names[1:])
    assert [task.error is not None for task in state.tasks] == [False, True, False][: len(names)]
    gate.open.set()

    assert await graph.ainvoke(None, thread(), durability=durability) == {"log": ["good"], "y": 1}
    assert runs.of == {"good": 1}


async def test_a_send_argument_that_cannot_be_stored_is_named() -> None:
    builder = chain(["a"], {"a": returns(Send("b", object()))}).add_node("b", logs("b"))
    error = await failing(builder.compile(checkpointer=WatchedSaver()), UnserializableValueError)

    assert "Node 'a' wrote a value to a Send that cannot be stored" in str(error)


async def test_an_input_that_cannot_be_stored_claims_and_stores_nothing() -> None:
    saver = WatchedSaver()
    with pytest.raises(UnserializableValueError, match=r"The input .* on thread 't' cannot be recorded: .*y"):
        await chain(["a"]).compile(checkpointer=saver).ainvoke({"y": object()}, thread())

    assert (saver.claims, saver.sent) == ([], [])


@pytest.mark.parametrize("width", [1, 2])
async def test_without_a_saver_any_value_goes(width: int) -> None:
    value = object()
    assert (await fan(["a", "b"][:width], {"a": returns({"y": value})}).compile().ainvoke({}))["y"] is value
    await anyio.lowlevel.checkpoint()
