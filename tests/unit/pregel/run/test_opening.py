"""Runs begin on nothing, on a stored thread, and below its head."""

from __future__ import annotations

import logging
import operator
from functools import partial
from typing import Annotated, Any, TypedDict

import anyio
import anyio.lowlevel
import pytest

from perdure.channels.untracked_value import UntrackedValue
from perdure.checkpoint.base import Checkpoint
from perdure.checkpoint.memory import InMemorySaver
from perdure.constants import START
from perdure.data import Durability, Send
from perdure.errors import EmptyInputError, InvalidPayloadError, MissingNodeError
from perdure.graph.state import StateGraph
from perdure.pregel.graph import Pregel
from tests.unit.pregel.graphs import Action, Log, Runs, chain, fails, fan, logs, returns, thread
from tests.unit.pregel.savers import WatchedSaver

MODES = pytest.mark.parametrize("durability", ["sync", "async", "exit"])


async def history(saver: InMemorySaver, namespace: str = "") -> list[Any]:
    """Return all checkpoints of a thread, newest first."""
    config = {"configurable": {"thread_id": "t", "checkpoint_ns": namespace}}
    return [checkpoint async for checkpoint in saver.alist(config)]


# Steps and checkpoints


@pytest.mark.parametrize("durability", ["sync", "async"])
async def test_every_superstep_is_a_checkpoint_and_a_later_input_counts_on(durability: Durability) -> None:
    saver = WatchedSaver()
    graph = chain(["a", "b"]).compile(checkpointer=saver)
    await graph.ainvoke({}, thread(metadata={"user": "me"}), durability=durability)
    await graph.ainvoke({}, thread(), durability=durability)
    stored = (await history(saver))[::-1]

    assert [(c.metadata["source"], c.metadata["step"]) for c in stored] == [
        *(("input", -1), ("loop", 0), ("loop", 1), ("loop", 2)),
        *(("input", 3), ("loop", 4), ("loop", 5), ("loop", 6)),
    ]
    assert [c.parent_config for c in stored] == [None, *(c.config for c in stored[:-1])]
    assert [c.metadata.get("user") for c in stored] == ["me"] * 4 + [None] * 4
    assert len({c.metadata["run_id"] for c in stored}) == 2


async def test_the_stored_state_comes_back_as_it_was() -> None:
    class State(TypedDict, total=False):
        items: Annotated[list[Any], operator.add]
        total: Annotated[int, operator.add]
        x: Any
        secret: Annotated[str, UntrackedValue]

    async def looks(state: State) -> Any:
        seen.append(dict(state))

    seen: list[Any] = []
    builder = StateGraph(State).add_node("a", looks).add_edge(START, "a")
    graph = builder.compile(checkpointer=WatchedSaver())
    value: Any = {"a": (1, 2), "b": [None, -0.0, 10**30], "c": b"bytes", "d": {1: "one"}}
    await graph.ainvoke({"items": [1, "two"], "total": 3, "x": value, "secret": "s"}, thread())
    await graph.ainvoke({}, thread())

    assert seen[0] == {"items": [1, "two"], "total": 3, "x": value, "secret": "s"}
    assert seen[1] == {"items": [1, "two"], "total": 3, "x": value}


# Below the head


async def test_two_branches_of_one_checkpoint_each_read_their_own() -> None:
    saver = WatchedSaver()
    broken: list[Exception] = []

    async def adds(state: Log) -> Any:
        if broken:
            raise broken.pop()
        return {"x": state.get("x", 0) + 1, "log": [f"x was {state.get('x', 0)}"]}

    graph = chain(["a", "b"], {"a": adds, "b": adds}).compile(checkpointer=saver)
    await graph.ainvoke({"x": 10}, thread())
    fork = next(c for c in await history(saver) if c.metadata["step"] == 0).config

    one = await graph.ainvoke({"x": 100}, fork)
    broken.append(ValueError("crash"))
    with pytest.raises(ValueError, match="crash"):
        await graph.ainvoke({"x": 1000}, fork)
    crashed = (await history(saver))[0].config
    two = await graph.ainvoke(None, crashed)

    assert (one["x"], one["log"]) == (102, ["x was 100", "x was 101"])
    assert (two["x"], two["log"]) == (1002, ["x was 1000", "x was 1001"])
    values = {
        c.checkpoint["channel_values"].get("x") for c in await history(saver) if c.metadata["step"] >= 2
    }
    assert {102, 1002} <= values


async def test_resuming_below_the_head_forks_and_runs_again_what_had_finished() -> None:
    saver, runs = WatchedSaver(), Runs()
    graph = chain(["a", "b"], {n: runs.counted(n) for n in "ab"}).compile(checkpointer=saver)
    await graph.ainvoke({}, thread())
    at_b = next(c for c in await history(saver) if c.metadata["step"] == 1)

    assert (await graph.ainvoke(None, at_b.config))["log"] == ["a", "b"]
    assert runs.of == {"a": 1, "b": 2}
    newest, fork, *_ = await history(saver)
    assert (fork.metadata["source"], fork.metadata["step"], fork.parent_config) == ("fork", 2, at_b.config)
    assert newest.parent_config == fork.config


async def test_resuming_at_the_id_of_the_head_is_a_plain_resume() -> None:
    saver, runs = WatchedSaver(), Runs()
    broken: list[Exception] = [ValueError("boom")]

    async def fails_once(state: Log) -> Any:
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        if broken:
            raise broken.pop()

    graph = fan(["a", "b"], {"a": runs.counted("a"), "b": fails_once}).compile(checkpointer=saver)
    with pytest.raises(ValueError, match="boom"):
        await graph.ainvoke({}, thread())
    [head, *_] = await history(saver)

    assert (await graph.ainvoke(None, head.config))["log"] == ["a"]
    assert runs.of == {"a": 1}
    assert "fork" not in {c.metadata["source"] for c in await history(saver)}


async def test_a_fork_that_fails_at_once_keeps_what_finished_on_a_checkpoint_that_exists() -> None:
    saver, runs = WatchedSaver(), Runs()
    broken: list[Exception] = []

    async def late(state: Log) -> Any:
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        if broken:
            raise broken.pop()
        return {"log": ["late"]}

    builder = chain(["p", "a"], {"a": runs.counted("a")}).add_node("late", late).add_edge("p", "late")
    graph = builder.compile(checkpointer=saver)
    await graph.ainvoke({}, thread())
    fork = next(c for c in await history(saver) if c.metadata["step"] == 1).config
    broken.append(ValueError("boom"))
    with pytest.raises(ValueError, match="boom"):
        await graph.ainvoke(None, fork, durability="exit")
    shelf = saver._threads["t"].shelves[""]

    assert set(shelf.writes) <= set(shelf.checkpoints)
    assert runs.of == {"a": 2}
    assert (await graph.ainvoke(None, thread()))["log"] == ["p", "a", "late"]
    assert runs.of == {"a": 2}, "its result of the failed run was kept"


async def test_a_checkpoint_whose_id_is_foreign_is_refused_and_the_thread_given_back() -> None:
    saver = WatchedSaver()
    foreign: Checkpoint = {
        "v": 1,
        "id": "ckpt-1",
        "ts": "2020",
        "channel_values": {"x": 1},
        "channel_versions": {"x": "0000000001.a"},
        "versions_seen": {},
        "updated_channels": None,
    }
    await saver.aput(thread(), foreign, {"source": "input", "step": -1}, {"x": "0000000001.a"})
    graph = chain(["a"]).compile(checkpointer=saver)
    for _ in range(2):
        with pytest.raises(InvalidPayloadError, match="whose id 'ckpt-1' is not a UUIDv6"):
            await graph.ainvoke({}, thread())

    assert len(saver.claims) == 2, "the second was not refused because the first still had the thread"


async def test_a_checkpoint_that_does_not_exist_has_nothing_to_resume() -> None:
    graph = chain(["a"]).compile(checkpointer=WatchedSaver())
    await graph.ainvoke({}, thread())
    with pytest.raises(EmptyInputError):
        await graph.ainvoke(None, {"configurable": {"thread_id": "t", "checkpoint_id": "nowhere"}})


async def test_ids_grow_past_everything_the_thread_has_seen() -> None:
    saver = WatchedSaver()
    graph = chain(["a"]).compile(checkpointer=saver)
    for _ in range(3):
        await graph.ainvoke({}, thread())
    ids = [row.checkpoint_id for commit in saver.sent for row in commit.checkpoints]

    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)


# A graph that has changed


async def test_a_thread_that_waits_on_a_node_that_is_gone_is_refused_by_name() -> None:
    saver = WatchedSaver()
    with pytest.raises(ValueError, match="boom"):
        await (
            chain(["a", "b"], {"b": fails(ValueError("boom"))})
            .compile(checkpointer=saver)
            .ainvoke({}, thread())
        )
    renamed = chain(["a", "c"]).compile(checkpointer=saver)

    with pytest.raises(MissingNodeError, match=r"waits on node 'b', which graph .* Its nodes are: a, c\."):
        await renamed.ainvoke(None, thread())
    assert await renamed.ainvoke({}, thread()) == {"log": ["a", "a", "c"]}, "a new input drops what was left"


@pytest.mark.parametrize("how", ["an edge", "a Send", "a join"])
async def test_a_new_input_clears_what_waited_on_a_node_that_is_gone(how: str) -> None:
    def graph(name: str, action: Action) -> Pregel:
        builder = chain(["a", "b"], {"a": returns(Send(name, {}) if how == "a Send" else None)})
        builder.add_node(name, action)
        if how != "a Send":
            builder.add_edge("b" if how == "an edge" else ["a", "b"], name)
        return builder.compile(checkpointer=saver)

    saver = WatchedSaver()
    with pytest.raises(ValueError, match="boom"):
        await graph("old", fails(ValueError("boom"))).ainvoke({}, thread())
    assert "old" in (await graph("new", logs("new")).aget_state(thread())).next
    await graph("new", logs("new")).ainvoke({}, thread())

    assert (await graph("new", logs("new")).aget_state(thread())).next == ()
    with pytest.raises(ValueError, match="again"):
        await graph("new", fails(ValueError("again"))).ainvoke({}, thread())
    result = await graph("new", logs("new")).ainvoke(None, thread())
    assert sorted(result["log"][-2:]) == ["b", "new"]


async def test_a_finished_node_that_goes_on_to_one_that_is_gone_is_refused() -> None:
    async def late(state: Log) -> Any:
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        raise ValueError("boom")

    saver = WatchedSaver()
    builder = fan(["a", "late"], {"late": late}).add_node("b", logs("b")).add_edge("a", "b")
    with pytest.raises(ValueError, match="boom"):
        await builder.compile(checkpointer=saver).ainvoke({}, thread())
    renamed = fan(["a", "late"]).add_node("c", logs("c")).add_edge("a", "c").compile(checkpointer=saver)

    for _ in range(2):
        with pytest.raises(MissingNodeError, match=r"finished and goes on to 'branch:to:b'"):
            await renamed.ainvoke(None, thread())


@pytest.mark.parametrize("key", ["branch", "join", "branch:", "join+"])
@pytest.mark.parametrize("value", ["main", ["main"], 3])
async def test_a_state_key_that_is_gone_is_no_node_whatever_its_name(key: str, value: Any) -> None:
    saver = WatchedSaver()
    with_key: Any = TypedDict("with_key", {key: Any, "x": int}, total=False)  # type: ignore[misc]
    builder = StateGraph(with_key).add_node("a", returns({"x": 2})).add_edge(START, "a")
    await builder.compile(checkpointer=saver).ainvoke({key: value}, thread())
    without = chain(["a"]).compile(checkpointer=saver)

    assert (await without.aget_state(thread())).next == ()
    assert (await without.ainvoke(None, thread()))["x"] == 2
    assert (await without.ainvoke({}, thread()))["log"] == ["a"]


async def test_a_join_that_is_due_to_a_node_that_is_gone_is_refused_by_name() -> None:
    saver = WatchedSaver()
    builder = fan(["a", "b"]).add_node("j", fails(ValueError("boom"))).add_edge(["a", "b"], "j")
    with pytest.raises(ValueError, match="boom"):
        await builder.compile(checkpointer=saver).ainvoke({}, thread())
    renamed = fan(["a", "b"]).add_node("k", logs("k")).add_edge(["a", "b"], "k").compile(checkpointer=saver)

    with pytest.raises(MissingNodeError, match="'j'"):
        await renamed.ainvoke(None, thread())


async def test_a_send_that_is_due_to_a_node_that_is_gone_is_refused_by_name() -> None:
    saver = WatchedSaver()
    builder = chain(["a"], {"a": returns(Send("b", 1))}).add_node("b", fails(ValueError("boom")))
    with pytest.raises(ValueError, match="boom"):
        await builder.compile(checkpointer=saver).ainvoke({}, thread())

    with pytest.raises(MissingNodeError, match="'b'"):
        await chain(["a"]).compile(checkpointer=saver).ainvoke(None, thread())


async def test_a_stored_write_to_a_key_that_is_gone_is_dropped_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Less(TypedDict, total=False):
        log: Annotated[list[str], operator.add]

    async def late(state: Log) -> Any:
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        raise ValueError("boom")

    saver = WatchedSaver()
    graph = fan(["a", "b"], {"a": returns({"log": ["a"], "x": 1}), "b": late}).compile(checkpointer=saver)
    with pytest.raises(ValueError, match="boom"):
        await graph.ainvoke({}, thread())
    builder = StateGraph(Less)
    for name in ("a", "b"):
        builder.add_node(name, partial(lambda said, state: {"log": [said]}, name))
    less = builder.add_edge(START, "a").add_edge(START, "b").compile(checkpointer=saver)

    with caplog.at_level(logging.WARNING, "perdure"):
        assert await less.ainvoke(None, thread()) == {"log": ["a", "b"]}
    assert "wrote to 'x', which graph 'LangGraph' no longer has" in caplog.text
