"""State snapshots: of the newest checkpoint with later results, of an older one as it was."""

from __future__ import annotations

from typing import Any

import anyio.lowlevel
import pytest

from perdure.constants import PULL, PUSH, START
from perdure.data import Command, Durability, Send, StateSnapshot
from perdure.errors import GraphValidationError, InvalidUpdateError, MissingThreadError
from perdure.graph.state import StateGraph
from perdure.pregel.graph import Pregel
from perdure.testing.clock import FakeClock
from tests.unit.pregel.graphs import Log, chain, fan, logs, returns, thread
from tests.unit.pregel.savers import WatchedSaver

MODES = pytest.mark.parametrize("durability", ["sync", "async", "exit"])


async def late_failure(state: Log) -> Any:
    for _ in range(5):
        await anyio.lowlevel.checkpoint()
    raise ValueError("boom")


async def stopped(graph: Pregel, given: Any = None, durability: Durability | None = None) -> StateSnapshot:
    """Return the state snapshot of a thread on which the graph has failed."""
    with pytest.raises(ValueError, match="boom"):
        await graph.ainvoke(given or {}, thread(), durability=durability)
    return await graph.aget_state(thread())


async def test_a_thread_that_does_not_exist_is_empty() -> None:
    graph = chain(["a"]).compile(checkpointer=WatchedSaver())
    snapshot = await graph.aget_state(thread())

    assert snapshot == StateSnapshot(
        values={},
        next=(),
        config={"configurable": {"thread_id": "t", "checkpoint_ns": ""}},
        metadata=None,
        created_at=None,
        parent_config=None,
        tasks=(),
        interrupts=(),
    )


async def test_a_graph_that_keeps_nothing_has_no_state() -> None:
    with pytest.raises(GraphValidationError, match="No checkpointer set"):
        await chain(["a"]).compile().aget_state(thread())


async def test_a_state_is_asked_for_by_thread() -> None:
    with pytest.raises(MissingThreadError):
        await chain(["a"]).compile(checkpointer=WatchedSaver()).aget_state({})


async def test_a_finished_thread() -> None:
    graph = chain(["a"]).compile(checkpointer=WatchedSaver(), clock=FakeClock())
    await graph.ainvoke({"x": 1}, thread(run_id="run", metadata={"user": "me"}))
    snapshot = await graph.aget_state(thread())

    assert snapshot.values == {"log": ["a"], "x": 1}
    assert (snapshot.next, snapshot.tasks) == ((), ())
    assert snapshot.metadata == {"source": "loop", "step": 1, "parents": {}, "run_id": "run", "user": "me"}
    assert snapshot.created_at == "2023-11-14T22:13:20+00:00"
    assert snapshot.parent_config is not None
    own, parent = (c["configurable"]["checkpoint_id"] for c in (snapshot.config, snapshot.parent_config))
    assert own > parent


@MODES
async def test_of_a_stopped_superstep_the_newest_state_counts_what_finished(durability: Durability) -> None:
    builder = fan(["quick", "bad", "quiet"], {"bad": late_failure, "quiet": returns(None)})
    snapshot = await stopped(builder.compile(checkpointer=WatchedSaver()), {"x": 1}, durability)

    assert snapshot.values == {"log": ["quick"], "x": 1}
    assert snapshot.next == ("bad",)
    assert [(t.name, t.path, t.error, t.result) for t in snapshot.tasks] == [
        ("quick", (PULL, "quick"), None, {"log": ["quick"]}),
        ("bad", (PULL, "bad"), "ValueError('boom')", None),
        ("quiet", (PULL, "quiet"), None, {}),
    ]


async def test_by_its_id_the_same_checkpoint_is_seen_as_it_was() -> None:
    graph = fan(["quick", "bad"], {"bad": late_failure}).compile(checkpointer=WatchedSaver())
    newest = await stopped(graph)
    by_id = await graph.aget_state(newest.config)

    assert by_id.values == {"log": []}
    assert by_id.next == ("quick", "bad")
    assert by_id.tasks == newest.tasks
    assert by_id.config == newest.config


async def test_results_of_sends_and_of_keys_written_twice() -> None:
    twice = Command(update=[("log", ["1"]), ("log", ["2"])])

    async def sent(number: int) -> Any:
        return twice if number == 0 else await late_failure({})

    builder = chain(["a"], {"a": returns([Send("b", 0), Send("b", 1)])}).add_node("b", sent)
    snapshot = await stopped(builder.compile(checkpointer=WatchedSaver()))

    assert [(t.name, t.path, t.result) for t in snapshot.tasks] == [
        ("b", (PUSH, 0), {"log": {"$writes": [["1"], ["2"]]}}),
        ("b", (PUSH, 1), None),
    ]
    assert snapshot.values["log"] == ["1", "2"]
    assert snapshot.next == ("b",)


async def test_ids_of_tasks_are_those_under_which_they_ran() -> None:
    saver = WatchedSaver()
    snapshot = await stopped(fan(["quick", "bad"], {"bad": late_failure}).compile(checkpointer=saver))

    assert {task.id for task in snapshot.tasks} <= {
        row.task_id for commit in saver.sent for row in commit.writes
    }


async def test_a_task_that_succeeded_at_last_shows_no_error_once_the_run_went_on() -> None:
    broken = [ValueError("boom")]

    async def fails_once(state: Log) -> Any:
        if broken:
            raise broken.pop()

    graph = chain(["a", "b", "c"], {"a": fails_once, "c": late_failure}).compile(checkpointer=WatchedSaver())
    await stopped(graph)
    with pytest.raises(ValueError, match="boom"):
        await graph.ainvoke(None, thread())
    snapshot = await graph.aget_state(thread())

    assert [(task.name, task.error) for task in snapshot.tasks] == [("c", "ValueError('boom')")]


async def test_reading_changes_nothing_and_what_is_read_is_the_readers() -> None:
    saver = WatchedSaver()
    graph = fan(["quick", "bad"], {"bad": late_failure}).compile(checkpointer=saver)
    first = await stopped(graph, {"y": {"deep": []}})
    sent = len(saver.sent)
    first.values["log"].append("spoilt")
    first.values["y"]["deep"].append("spoilt")
    second = await graph.aget_state(thread())

    assert second.values == {"log": ["quick"], "y": {"deep": []}}
    assert len(saver.sent) == sent
    assert len(saver.claims) == 1


async def test_a_childs_state_is_read_by_its_namespace() -> None:
    child = chain(["c", "bad"], {"bad": late_failure}).compile()

    async def invokes(state: Log) -> Any:
        return await child.ainvoke({"x": 5})

    graph = StateGraph(Log).add_node("a", invokes).add_edge(START, "a").compile(checkpointer=WatchedSaver())
    [task] = (await stopped(graph)).tasks
    reader = chain(["c", "bad"], {"bad": late_failure}).compile(checkpointer=graph.checkpointer)
    snapshot = await reader.aget_state({"configurable": {"thread_id": "t", "checkpoint_ns": f"a:{task.id}"}})

    assert snapshot.values == {"log": ["c"], "x": 5}
    assert snapshot.next == ("bad",)


async def test_every_checkpoint_of_a_history_tells_what_came_next() -> None:
    saver = WatchedSaver()
    graph = chain(["a", "b"]).add_node("unused", logs("unused")).compile(checkpointer=saver)
    await graph.ainvoke({}, thread())
    seen = [await graph.aget_state(stored.config) async for stored in saver.alist(thread())]

    assert [snapshot.next for snapshot in seen] == [(), ("b",), ("a",), (START,)]
    assert [snapshot.values["log"] for snapshot in seen] == [["a", "b"], ["a"], [], []]


async def test_a_thread_that_waits_on_a_node_which_is_gone_does_not_look_finished() -> None:
    saver = WatchedSaver()
    broken = chain(["a", "b"], {"b": late_failure}).compile(checkpointer=saver)
    await stopped(broken)

    renamed = chain(["a", "c"]).compile(checkpointer=saver)
    assert (await renamed.aget_state(thread())).next == ("b",)


async def test_a_thread_that_holds_a_send_to_a_node_which_is_gone_is_read_and_waits_on_it() -> None:
    saver = WatchedSaver()
    sends: Any = [Send("old", 1), Send("kept", 2)]
    builder = chain(["a"], {"a": returns(sends)}).add_node("kept", late_failure)
    await stopped(builder.add_node("old", late_failure).compile(checkpointer=saver))
    renamed = chain(["a"]).add_node("kept", logs("kept")).compile(checkpointer=saver)

    assert (await renamed.aget_state(thread())).next == ("kept", "old")


async def test_a_childs_pending_sends_are_read_with_its_parents_graph() -> None:
    saver = WatchedSaver()
    builder = chain(["s"], {"s": returns(Send("leaf", 1))}).add_node("leaf", late_failure)
    child = builder.compile()

    async def invokes(state: Log) -> Any:
        return await child.ainvoke({})

    graph = chain(["a"], {"a": invokes}).compile(checkpointer=saver)
    await stopped(graph)
    [config, *_] = [
        stored.config
        async for stored in saver.alist(thread())
        if stored.config["configurable"]["checkpoint_ns"]
    ]

    assert (await graph.aget_state(config)).next == ("leaf",)


async def test_results_that_do_not_fit_together_are_seen_with_their_tasks_and_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    graph = fan(["a", "b"], {"a": returns({"x": 1}), "b": returns({"x": 2})}).compile(
        checkpointer=WatchedSaver()
    )
    with pytest.raises(InvalidUpdateError, match="Can receive only one value per step, but 2"):
        await graph.ainvoke({}, thread())
    snapshot = await graph.aget_state(thread())

    assert "x" not in snapshot.values
    assert [task.result for task in snapshot.tasks] == [{"x": 1}, {"x": 2}]
    assert "The results of the open superstep of thread 't' do not fit together" in caplog.text
