"""Commands for a parent graph: their arrival, the runs that they end, the results that they leave behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import pytest

from perdure.constants import START
from perdure.data import Command, Durability, Send
from perdure.errors import InvalidUpdateError, InvalidUpdateWarning, ParentCommand
from perdure.graph.state import StateGraph
from perdure.pregel.graph import Pregel
from tests.unit.pregel.graphs import Log, Runs, chain, fails, fan, logs, returns, thread
from tests.unit.pregel.savers import WatchedSaver

UP: Any = Command.PARENT


def hand_off(graph: Any = UP, **more: Any) -> Command[Any]:
    return Command(graph=graph, **more)


def around(child: Any, *others: str, edges: Sequence[tuple[str, str]] = (), saver: Any = None) -> Pregel:
    """Build a graph that begins with the node "child". The others log their names."""
    builder = StateGraph(Log).add_node("child", child).add_edge(START, "child")
    for name in others:
        builder.add_node(name, logs(name))
    for edge in edges:
        builder.add_edge(*edge)
    return builder.compile(checkpointer=saver)


def called(child: Pregel) -> Callable[[Any], Any]:
    """Make a node that invokes a graph, and returns nothing of its result."""

    async def call(state: Log) -> Any:
        await child.ainvoke({})
        return {"log": ["not reached"]}

    return call


# Where it arrives


@pytest.mark.parametrize("as_node", [True, False], ids=["a node", "called by a node"])
@pytest.mark.parametrize("saved", [True, False], ids=["saved", "not saved"])
async def test_a_command_for_the_parent_is_taken_there_as_if_the_node_had_returned_it(
    as_node: bool, saved: bool
) -> None:
    command = hand_off(update={"log": ["by command"], "x": 3}, goto="goto")
    child = chain(["a", "b"], {"a": returns(command)}).compile()
    graph = around(
        child if as_node else called(child),
        *("goto", "edge"),
        edges=[("child", "edge")],
        saver=WatchedSaver() if saved else None,
    )

    result = await graph.ainvoke({"log": ["in"]}, thread() if saved else None)

    assert result == {"log": ["in", "by command", "edge", "goto"], "x": 3}


async def test_a_sync_node_that_runs_a_graph_passes_the_command_on() -> None:
    child = chain(["a"], {"a": returns(hand_off(update={"x": 1}))}).compile()

    token = anyio.lowlevel.current_token()

    def call(state: Log) -> Any:
        return anyio.from_thread.run(child.ainvoke, {}, token=token)

    assert (await around(call).ainvoke({}))["x"] == 1


async def test_a_sync_node_can_command_the_parent() -> None:
    child = (
        StateGraph(Log).add_node("a", lambda state: hand_off(update={"x": 1})).add_edge(START, "a").compile()
    )

    assert (await around(child).ainvoke({}))["x"] == 1


async def test_a_node_that_was_sent_to_takes_the_command_too() -> None:
    child = chain(["a"], {"a": returns(hand_off(update={"log": ["up"]}, goto="after"))}).compile()
    graph = StateGraph(Log).add_node("child", child).add_node("after", logs("after"))
    graph.add_node("send", returns([Send("child", {}), Send("child", {})])).add_edge(START, "send")

    assert (await graph.compile().ainvoke({}))["log"] == ["up", "up", "after"]


async def test_sends_and_update_of_a_command_all_arrive() -> None:
    async def sent(number: Any) -> Any:
        return {"log": [f"sent {number}"]}

    command = hand_off(update={"log": ["up"]}, goto=[Send("sent", 1), Send("sent", 2)])
    child = chain(["a"], {"a": returns([command])}).compile()
    graph = StateGraph(Log).add_node("child", child).add_node("sent", sent).add_edge(START, "child")

    assert (await graph.compile().ainvoke({}))["log"] == ["up", "sent 1", "sent 2"]


async def test_several_commands_of_one_node_all_arrive() -> None:
    commands = [hand_off(update={"log": [name]}, goto=name) for name in ("b", "c")]
    child = chain(["a"], {"a": returns([{"log": ["lost"]}, *commands])}).compile()

    assert (await around(child, "b", "c").ainvoke({}))["log"] == ["b", "c", "b", "c"]


@pytest.mark.parametrize("limit", [None, 1])
async def test_commands_of_nodes_side_by_side_all_arrive_in_their_order(
    limit: int | None,
) -> None:
    async def late(state: Log) -> Any:
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        return hand_off(update={"log": ["late"]})

    early = returns(hand_off(update={"log": ["early"]}))
    child = fan(["a", "b", "c"], {"a": late, "b": early}).compile()

    assert await around(child).ainvoke({}, {"max_concurrency": limit}) == {"log": ["late", "early"]}


async def test_graphs_that_one_node_runs_side_by_side_can_each_command_it() -> None:
    one, two = (chain([n], {n: returns(hand_off(update={"log": [n]}))}).compile() for n in ("one", "two"))

    async def both(state: Log) -> Any:
        outcomes = await asyncio.gather(one.ainvoke({}), two.ainvoke({}), return_exceptions=True)
        raise BaseExceptionGroup("both", [each for each in outcomes if isinstance(each, BaseException)])

    assert (await around(both).ainvoke({}))["log"] == ["one", "two"]


async def test_a_command_in_an_exception_group_is_found_and_a_real_error_beside_it_wins() -> None:
    child = chain(["a"], {"a": returns(hand_off(update={"x": 5}))}).compile()

    def grouped(*beside: BaseException) -> Callable[[Any], Any]:
        async def call(state: Log) -> Any:
            try:
                await child.ainvoke({})
            except ParentCommand as command:
                raise BaseExceptionGroup(
                    "nested", [BaseExceptionGroup("group", [command, *beside])]
                ) from None

        return call

    assert (await around(grouped()).ainvoke({}))["x"] == 5
    with pytest.raises(BaseExceptionGroup) as raised:
        await around(grouped(ValueError("boom"))).ainvoke({})
    assert raised.value.message == "nested"


async def test_a_parent_command_raised_by_hand_is_one_returned() -> None:
    child = chain(["a"], {"a": fails(ParentCommand(hand_off(update={"x": 1})))}).compile()

    assert (await around(child).ainvoke({}))["x"] == 1


async def test_what_the_parent_does_not_know_is_warned_of() -> None:
    child = chain(["a"], {"a": returns(hand_off(update={"z": 1, "x": 2}))}).compile()
    with pytest.warns(InvalidUpdateWarning, match="Node 'child' wrote to 'z'"):
        assert await around(child).ainvoke({}) == {"log": [], "x": 2}


async def test_updates_show_the_command_as_the_nodes_update() -> None:
    child = chain(["a"], {"a": returns(hand_off(update={"x": 1}))}).compile()

    assert [event async for event in around(child).astream({})] == [{"child": {"x": 1}}]


# Further up


def three_deep(command: Command[Any], saver: Any = None) -> Pregel:
    """Build "leaf" in "middle" in "child". Each graph logs after the node that holds the next one."""
    leaf = chain(["leaf", "after_leaf"], {"leaf": returns(command)}).compile()
    middle = chain(["middle", "after_middle"], {"middle": leaf}).compile()  # type: ignore[dict-item]
    return around(middle, "after", "goto", edges=[("child", "after")], saver=saver)


@pytest.mark.parametrize("saved", [True, False], ids=["saved", "not saved"])
@pytest.mark.parametrize(
    ("target", "log"),
    [
        (UP, ["up", "after_middle", "after"]),
        ("middle", ["up", "after_middle", "after"]),
        ("child|middle", ["up", "after_middle", "after"]),
        ("child", ["up", "after"]),
    ],
)
async def test_a_command_names_the_node_in_which_the_graph_runs_that_it_leaves(
    target: str, log: list[str], saved: bool
) -> None:
    graph = three_deep(hand_off(target, update={"log": ["up"]}), WatchedSaver() if saved else None)

    assert (await graph.ainvoke({}, thread() if saved else None))["log"] == log


async def test_a_command_can_name_the_very_namespace() -> None:
    namespaces: list[str] = []

    async def leaf(state: Log, config: Any) -> Any:
        above = config["configurable"]["checkpoint_ns"].rpartition("|")[0]
        namespaces.append(above)
        return hand_off(above, update={"log": ["up"]})

    child = chain(["leaf"], {"leaf": leaf}).compile()  # type: ignore[dict-item]

    assert (await around(child).ainvoke({}))["log"] == ["up"]
    assert namespaces[0].startswith("child:")


async def test_a_goto_two_levels_up_is_gone_to_there() -> None:
    graph = three_deep(hand_off("child", update={"log": ["up"]}, goto="goto"))

    assert (await graph.ainvoke({}))["log"] == ["up", "after", "goto"]


async def test_a_command_for_the_graph_of_the_nodes_own_name_stays_there() -> None:
    graph = chain(["a", "b"], {"a": returns(hand_off("a", update={"log": ["here"]}))}).compile()

    assert (await graph.ainvoke({}))["log"] == ["here", "b"]


# What is refused


@pytest.mark.parametrize("returned", [hand_off(), [hand_off(update={"x": 1})], hand_off("elsewhere")])
async def test_a_graph_that_runs_in_no_other_has_no_parent(returned: Any) -> None:
    saver = WatchedSaver()
    graph = chain(["a"], {"a": returns(returned)}).compile(checkpointer=saver)
    with pytest.raises(InvalidUpdateError, match="There is no parent graph: node 'a' returned"):
        await graph.ainvoke({}, thread())

    assert saver.sent[-1].end is not None
    assert saver.sent[-1].end.status == "error"


async def test_a_graph_that_is_named_wrongly_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(InvalidUpdateError, match=r"graph='midle'.* in which it runs: 'middle', 'child'\."):
        await three_deep(hand_off("midle")).ainvoke({})


@pytest.mark.parametrize("side_by_side", [True, False])
async def test_a_superstep_cannot_be_left_for_two_graphs(side_by_side: bool) -> None:
    commands = [hand_off("middle"), hand_off("child")]
    if side_by_side:
        leaf = fan(["a", "b"], {"a": returns(commands[0]), "b": returns(commands[1])}).compile()
    else:
        leaf = chain(["a"], {"a": returns(commands)}).compile()
    middle = chain(["middle"], {"middle": leaf}).compile()  # type: ignore[dict-item]
    with pytest.raises(InvalidUpdateError, match=r"Commands for different parent graphs: 'middle', 'child'"):
        await around(middle).ainvoke({})


async def test_a_command_that_was_kept_is_refused_where_it_does_not_belong() -> None:
    child, kept = chain(["a"], {"a": returns(hand_off())}).compile(), []

    async def keep(state: Log) -> Any:
        try:
            await child.ainvoke({})
        except ParentCommand as command:
            kept.append(command)

    async def use(state: Log) -> Any:
        raise kept[0]

    with pytest.raises(
        InvalidUpdateError, match="Node 'use' raised a ParentCommand for a node in which it does not run"
    ):
        await chain(["keep", "use"], {"keep": keep, "use": use}).compile().ainvoke({})


async def test_an_error_beside_a_command_wins() -> None:
    child = fan(["a", "b"], {"a": returns(hand_off()), "b": fails(ValueError("boom"))}).compile()
    with pytest.raises(ValueError, match="boom"):
        await around(child).ainvoke({})


# What user code makes of it


async def test_a_broad_except_does_not_swallow_it_and_a_bare_one_may() -> None:
    child = chain(["a"], {"a": returns(hand_off(update={"log": ["up"]}))}).compile()

    async def broad(state: Log) -> Any:
        try:
            return await child.ainvoke({})
        except Exception:
            return {"log": ["swallowed"]}

    async def bare(state: Log) -> Any:
        try:
            return await child.ainvoke({})
        except BaseException:
            return {"log": ["swallowed"]}

    assert (await around(broad).ainvoke({}))["log"] == ["up"]
    assert (await around(bare).ainvoke({}))["log"] == ["swallowed"]


async def test_a_graph_run_in_a_task_of_the_nodes_passes_it_on() -> None:
    child = chain(["a"], {"a": returns(hand_off(update={"log": ["up"]}))}).compile()

    async def call(state: Log) -> Any:
        return await asyncio.create_task(child.ainvoke({}))

    assert (await around(call).ainvoke({}))["log"] == ["up"]


# What is stored


MODES = pytest.mark.parametrize("durability", ["sync", "async", "exit"])


@MODES
async def test_a_graph_that_is_left_stores_no_more_checkpoints_and_no_error(
    durability: Durability,
) -> None:
    saver = WatchedSaver()
    child = fan(["a", "b"], {"a": returns(hand_off(update={"log": ["up"]}))}).compile()
    graph = around(child, saver=saver)

    assert (await graph.ainvoke({}, thread(), durability=durability))["log"] == ["up"]
    below = [row for commit in saver.sent for row in commit.checkpoints if row.ns]
    assert max((row.metadata["step"] for row in below), default=0) == 0
    assert "__error__" not in {row.channel for commit in saver.sent for row in commit.writes}
    assert saver.sent[-1].end is not None
    assert saver.sent[-1].end.status == "success"
    assert (await graph.aget_state(thread())).next == ()


@MODES
async def test_after_a_crash_beyond_the_hand_off_it_is_not_made_again(
    durability: Durability,
) -> None:
    saver, runs, broken = WatchedSaver(), Runs(), [ValueError("boom")]

    async def fails_once(state: Log) -> Any:
        if broken:
            raise broken.pop()
        return {"log": ["after"]}

    commands = runs.counted("a", returns(hand_off(update={"log": ["up"]}, goto="after")))
    child = fan(["a", "b"], {"a": commands, "b": runs.counted("b")}).compile()
    builder = StateGraph(Log).add_node("child", child).add_node("after", fails_once).add_edge(START, "child")
    graph = builder.compile(checkpointer=saver)
    with pytest.raises(ValueError, match="boom"):
        await graph.ainvoke({}, thread(), durability=durability)

    assert (await graph.ainvoke(None, thread(), durability=durability))["log"] == ["up", "after"]
    assert runs.of == {"a": 1, "b": 1}
    assert (await graph.ainvoke({}, thread(), durability=durability))["log"] == ["up", "after"] * 2
    assert runs.of == {"a": 2, "b": 2}, "a new run begins the graph anew"


@pytest.mark.parametrize("durability", ["sync", "async"])
async def test_after_a_crash_before_the_hand_off_is_stored_it_happens_again(durability: Durability) -> None:
    saver, runs, broken = WatchedSaver(), Runs(), [ValueError("boom")]
    commands = runs.counted("a", returns(hand_off(update={"log": ["up"]}, goto="after")))
    child = fan(["a", "b"], {"a": commands, "b": runs.counted("b")}).compile()

    async def call(state: Log) -> Any:
        try:
            await child.ainvoke({})
        finally:
            if broken:
                raise broken.pop()

    graph = around(call, "after", saver=saver)
    with pytest.raises(ValueError, match="boom"):
        await graph.ainvoke({}, thread(), durability=durability)

    assert (await graph.ainvoke(None, thread(), durability=durability))["log"] == ["up", "after"]
    assert runs.of == {"a": 2, "b": 1}, "what had finished beside it is not run again"


async def test_a_graph_on_a_thread_of_its_own_gives_it_back_when_it_is_left() -> None:
    saver = WatchedSaver()
    child = chain(["a"], {"a": returns(hand_off(update={"log": ["up"]}))}).compile(checkpointer=saver)

    async def call(state: Log) -> Any:
        return await child.ainvoke({}, thread("own"))

    graph = around(call, saver=saver)
    for count in (1, 2):
        assert (await graph.ainvoke({}, thread()))["log"] == ["up"] * count

    ends = {commit.thread_id: commit.end for commit in saver.sent if commit.end is not None}
    assert {name: end.status for name, end in ends.items()} == {"t": "success", "own": "success"}


async def test_an_error_of_a_graph_that_library_code_cancelled_is_named_at_every_level() -> None:
    async def cancelled(state: Log) -> Any:
        raise asyncio.CancelledError

    child = chain(["a"], {"a": cancelled}).compile()
    with pytest.raises(RuntimeError, match="Node 'a' raised CancelledError, but nobody") as raised:
        await around(child).ainvoke({})

    notes = "".join(raised.value.__notes__)
    assert "name 'a'" in notes
    assert "name 'child'" in notes


async def test_cancelling_the_run_while_others_outlast_a_command_stops_them() -> None:
    entered, stopped = anyio.Event(), []

    async def waits(state: Log) -> Any:
        entered.set()
        try:
            await anyio.sleep_forever()
        finally:
            stopped.append(True)

    child = fan(["a", "b"], {"a": returns(hand_off()), "b": waits}).compile()
    run = asyncio.create_task(around(child).ainvoke({}))
    await entered.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    assert stopped == [True]
