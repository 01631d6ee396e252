"""Commands as inputs: without a thread, on a stored one, beside tasks that are left, and after a crash."""

from __future__ import annotations

import asyncio
import operator
import re
from typing import Annotated, Any, TypedDict

import pytest

from perdure.checkpoint.memory import InMemorySaver
from perdure.constants import START
from perdure.data import Command, Durability, Overwrite, RetryPolicy, Send
from perdure.errors import EmptyInputError, InvalidUpdateError, MissingNodeError, NoCheckpointerError
from perdure.graph.state import StateGraph
from perdure.pregel.graph import Pregel
from tests.unit.pregel.graphs import Action, Gate, Log, Runs, chain, fails, fan, logs, settle, thread
from tests.unit.pregel.savers import WatchedSaver
from tests.unit.pregel.test_crashes import HOW, GoesOn, Scene

MODES = pytest.mark.parametrize("durability", ["sync", "async", "exit"])


def failing_once(runs: Runs, saver: Any) -> tuple[Pregel, Pregel]:
    """Build two graphs of a and b side by side, then c: one with a b that fails, one with a b that works."""

    def build(b: Any) -> Pregel:
        counted = {name: runs.counted(name) for name in ("a", "c")}
        builder = fan(["a", "b"], {**counted, "b": b}).add_node("c", counted["c"])
        return builder.add_edge(["a", "b"], "c").compile(checkpointer=saver)

    return build(fails(ValueError("not yet"))), build(runs.counted("b"))


# On nothing


async def test_an_update_and_a_goto_start_a_graph_that_keeps_nothing() -> None:
    graph = chain(["a", "b"]).compile()

    assert await graph.ainvoke(Command(update={"log": ["given"]}, goto="b")) == {"log": ["given", "b"]}


@MODES
async def test_an_update_and_a_goto_start_a_thread(durability: Durability) -> None:
    graph = chain(["a", "b"]).compile(checkpointer=InMemorySaver())
    command = Command(update={"log": ["given"], "x": 3}, goto=["b", Send("a", {"x": 1})])

    assert await graph.ainvoke(command, thread(), durability=durability) == {
        "log": ["given", "b", "a", "b"],
        "x": 3,
    }
    assert (await graph.aget_state(thread())).values["x"] == 3


async def test_an_update_alone_runs_nothing() -> None:
    graph = chain(["a"]).compile(checkpointer=InMemorySaver())

    assert await graph.ainvoke(Command(update={"x": 3}), thread()) == {"log": [], "x": 3}
    assert (await graph.aget_state(thread())).values == {"log": [], "x": 3}


# On a stored thread


@MODES
async def test_a_finished_thread_is_updated_and_goes_where_it_is_told(durability: Durability) -> None:
    graph = chain(["a", "b"]).compile(checkpointer=InMemorySaver())
    await graph.ainvoke({}, thread())
    command = Command(update={"log": ["more"], "x": 1}, goto="b")

    assert await graph.ainvoke(command, thread(), durability=durability) == {
        "log": ["a", "b", "more", "b"],
        "x": 1,
    }
    assert (await graph.aget_state(thread())).values == {"log": ["a", "b", "more", "b"], "x": 1}
    assert await graph.ainvoke({}, thread()) == {"log": ["a", "b", "more", "b", "a", "b"], "x": 1}


@MODES
async def test_what_the_thread_had_left_to_do_runs_too_and_what_had_finished_does_not(
    durability: Durability,
) -> None:
    runs = Runs()
    broken, mended = failing_once(runs, InMemorySaver())
    with pytest.raises(ValueError, match="not yet"):
        await broken.ainvoke({}, thread(), durability=durability)
    output = await mended.ainvoke(Command(update={"x": 7}, goto="c"), thread(), durability=durability)

    assert output == {"log": ["a", "b", "c", "c"], "x": 7}
    assert runs.of == {"a": 1, "b": 1, "c": 2}


async def test_packets_that_wait_are_not_replaced_by_those_of_a_command() -> None:
    async def sent(given: Any) -> Any:
        return {"log": [f"sent {given['n']}"]}

    builder = chain(["a"]).add_node("sent", sent)
    builder.add_conditional_edges("a", lambda state: [Send("sent", {"n": 1}), Send("sent", {"n": 2})])
    graph = Pregel.from_plan(
        builder.compile().plan, checkpointer=InMemorySaver(), interrupt_before_nodes=["sent"]
    )
    await graph.ainvoke({}, thread())

    output = await graph.ainvoke(Command(goto=Send("sent", {"n": 3})), thread())

    assert output["log"] == ["a", "sent 1", "sent 2", "sent 3"]


@MODES
async def test_a_deferred_node_that_a_command_goes_to_waits_for_what_was_left_to_do(
    durability: Durability,
) -> None:
    broken = chain(["a"], {"a": fails(ValueError("not yet"))}).add_node("late", logs("late"), defer=True)
    mended = chain(["a", "b"]).add_node("late", logs("late"), defer=True)
    saver = InMemorySaver()
    with pytest.raises(ValueError, match="not yet"):
        await broken.compile(checkpointer=saver).ainvoke({}, thread(), durability=durability)
    graph = mended.compile(checkpointer=saver)

    assert await graph.ainvoke(Command(goto="late"), thread()) == {"log": ["a", "b", "late"]}
    assert await graph.ainvoke(Command(goto="late"), thread()) == {"log": ["a", "b", "late", "late"]}


async def test_commands_accumulate_until_the_thread_goes_on() -> None:
    broken = chain(["a"], {"a": fails(ValueError("no"))}).compile(checkpointer=(saver := InMemorySaver()))
    for number in (1, 2, 3):
        with pytest.raises(ValueError, match="no"):
            await broken.ainvoke(
                Command(update={"log": [f"command {number}"]}) if number > 1 else {}, thread()
            )
    state = await broken.aget_state(thread())

    assert state.values["log"] == ["command 2", "command 3"]
    assert state.next == ("a",)
    assert await chain(["a"]).compile(checkpointer=saver).ainvoke(None, thread()) == {
        "log": ["command 2", "command 3", "a"]
    }


async def test_each_command_is_a_superstep_of_its_own_to_a_key_that_takes_one_value() -> None:
    broken = chain(["a"], {"a": fails(ValueError("no"))}).compile(checkpointer=(saver := InMemorySaver()))
    inputs: list[Any] = [{}, Command(update={"x": 1}), Command(update={"x": 2})]
    for given in inputs:
        with pytest.raises(ValueError, match="no"):
            await broken.ainvoke(given, thread())

    assert (await broken.aget_state(thread())).values["x"] == 2
    assert (await chain(["a"]).compile(checkpointer=saver).ainvoke(None, thread()))["x"] == 2


@MODES
async def test_a_new_input_drops_where_commands_went_but_not_what_they_wrote(durability: Durability) -> None:
    saver = InMemorySaver()
    broken = chain(["a", "b"], {"a": fails(ValueError("no"))}).compile(checkpointer=saver)
    inputs: list[Any] = [{}, Command(update={"log": ["written"]}, goto=["b", Send("b", {})])]
    for given in inputs:
        with pytest.raises(ValueError, match="no"):
            await broken.ainvoke(given, thread(), durability=durability)
    graph = chain(["a", "b"]).compile(checkpointer=saver)
    result = await graph.ainvoke({"log": ["new"]}, thread(), durability=durability)

    assert result["log"] == ["written", "new", "a", "b"]
    assert (await graph.aget_state(thread())).values == result


@pytest.mark.parametrize("goto", ["gone", Send("gone", {})], ids=["by name", "by a Send"])
async def test_a_node_that_a_command_went_to_and_that_is_gone_is_named(goto: Any) -> None:
    broken = chain(["a", "gone"], {"a": fails(ValueError("no"))})
    saver = InMemorySaver()
    inputs: list[Any] = [{}, Command(goto=goto)]
    for given in inputs:
        with pytest.raises(ValueError, match="no"):
            await broken.compile(checkpointer=saver).ainvoke(given, thread())
    graph = chain(["a", "b"]).compile(checkpointer=saver)
    state = await graph.aget_state(thread())

    assert state.next == ("a", "gone")
    for config in (thread(), state.config):
        with pytest.raises(MissingNodeError, match="waits on node 'gone'"):
            await graph.ainvoke(None, config)


@MODES
async def test_commands_that_write_one_after_the_other_to_a_key_of_one_value_leave_the_last(
    durability: Durability,
) -> None:
    graph = chain(["a"]).compile(checkpointer=InMemorySaver())
    await graph.ainvoke({}, thread())
    for x in (1, 2):
        await graph.ainvoke(Command(update={"x": x}), thread(), durability=durability)

    assert (await graph.aget_state(thread())).values["x"] == 2
    assert await graph.ainvoke(None, thread()) == {"log": ["a"], "x": 2}


@MODES
async def test_a_new_input_drops_what_was_left_to_do_and_not_what_commands_have_written(
    durability: Durability,
) -> None:
    graph = chain(["a"]).compile(checkpointer=InMemorySaver())
    await graph.ainvoke({}, thread())
    told = await graph.ainvoke(Command(update={"log": ["told"], "x": 1}), thread(), durability=durability)

    assert told == {"log": ["a", "told"], "x": 1}
    assert await graph.ainvoke({"log": ["new"]}, thread()) == {"log": ["a", "told", "new", "a"], "x": 1}


def one_of_two(how: str, broken: Action, runs: Runs) -> StateGraph:
    """Build the nodes late and other, which run side by side. A join starts late, or both are deferred."""
    builder = chain(["a"], {"a": runs.counted("a")})
    builder.add_node("late", runs.counted("late"), defer=how == "deferred")
    builder.add_node("other", broken, defer=how == "deferred")
    return builder.add_edge(["a"] if how == "joined" else "a", "late").add_edge("a", "other")


@MODES
@pytest.mark.parametrize("how", ["joined", "deferred"])
async def test_a_command_that_goes_to_a_node_that_is_due_keeps_what_of_it_has_finished(
    how: str, durability: Durability
) -> None:
    runs, saver = Runs(), InMemorySaver()

    async def fails_late(state: Any) -> Any:
        await settle()
        raise ValueError("not yet")

    with pytest.raises(ValueError, match="not yet"):
        await (
            one_of_two(how, fails_late, runs)
            .compile(checkpointer=saver)
            .ainvoke({}, thread(), durability=durability)
        )
    graph = one_of_two(how, logs("other"), runs).compile(checkpointer=saver)

    assert await graph.ainvoke(Command(goto="late"), thread()) == {"log": ["a", "late", "other"]}
    assert runs.of == {"a": 1, "late": 1}


async def test_a_fork_takes_the_commands_of_its_checkpoint_along() -> None:
    saver = InMemorySaver()
    broken = chain(["a"], {"a": fails(ValueError("no"))}).compile(checkpointer=saver)
    graph = chain(["a"]).compile(checkpointer=saver)
    inputs: list[Any] = [{}, Command(update={"log": ["command"]})]
    for given in inputs:
        with pytest.raises(ValueError, match="no"):
            await broken.ainvoke(given, thread())
    head = (await broken.aget_state(thread())).config
    assert (await graph.ainvoke(None, thread()))["log"] == ["command", "a"]

    assert (await graph.ainvoke(None, head))["log"] == ["command", "a"]
    assert (await graph.ainvoke(Command(update={"log": ["other"]}), head))["log"] == ["command", "other", "a"]


async def test_an_update_is_stored_with_the_next_checkpoint_whatever_the_reducer() -> None:
    class State(TypedDict, total=False):
        appended: Annotated[list[int], operator.add]
        merged: Annotated[dict[str, int], operator.or_]

    async def nothing(state: State) -> None: ...

    saver = WatchedSaver()
    graph = StateGraph(State).add_node("a", nothing).add_edge(START, "a").compile(checkpointer=saver)
    await graph.ainvoke({"appended": [1], "merged": {"a": 1}}, thread())
    for update in ({"appended": [2], "merged": {"b": 2}}, {"appended": Overwrite([9])}):
        await graph.ainvoke(Command(update=update, goto="a"), thread())

    assert (await graph.aget_state(thread())).values == {"appended": [9], "merged": {"a": 1, "b": 2}}


@MODES
async def test_a_resume_where_nothing_waits_just_continues(durability: Durability) -> None:
    runs = Runs()
    broken, mended = failing_once(runs, InMemorySaver())
    with pytest.raises(ValueError, match="not yet"):
        await broken.ainvoke({}, thread(), durability=durability)

    assert await mended.ainvoke(Command(resume=None), thread()) == {"log": ["a", "b", "c"]}


# After a crash


@HOW
@MODES
async def test_a_command_is_applied_once_though_its_run_was_killed(
    goes_on: GoesOn, durability: Durability
) -> None:
    scene, gate = Scene(), Gate()
    await scene.graph("a", "b").ainvoke({}, thread())
    dying = scene.graph("a", "b", b=gate)
    run = dying.ainvoke(Command(update={"log": ["once"]}, goto="b"), thread(), durability=durability)
    await scene.kill(asyncio.create_task(run), gate)

    assert await goes_on(scene.graph("a", "b")) == {"log": ["a", "b", "once", "b"]}


@HOW
async def test_a_command_beside_early_results_is_applied_once_though_its_run_was_killed(
    goes_on: GoesOn,
) -> None:
    scene, gate = Scene(), Gate()
    await scene.graph("a", "b").ainvoke({}, thread())
    counted: dict[str, Action] = {"a": scene.runs.counted("a"), "b": gate}
    dying = chain(["a", "b"], counted).compile(checkpointer=scene.saver, name="mine", clock=scene.clock)
    command = Command(update={"log": ["once"]}, goto=[Send("a", {}), "b"])
    run = asyncio.create_task(dying.ainvoke(command, thread(), durability="sync"))
    orphan = await scene.kill(run, gate)

    assert not orphan.started
    assert await goes_on(scene.graph("a", "b")) == {"log": ["a", "b", "once", "b", "a", "b"]}
    assert scene.runs.of == {"b": 2}


# What is refused


async def refusal(given: Command[Any], error: type[Exception], **options: Any) -> str:
    saver = WatchedSaver()
    graph = chain(["alpha", "beta"]).compile(checkpointer=options.pop("saver", saver))
    with pytest.raises(error) as caught:
        await graph.ainvoke(given, thread())
    assert await saver.aget_tuple(thread()) is None
    return str(caught.value)


async def test_an_empty_command_is_refused() -> None:
    assert "Received empty Command input" in await refusal(Command(), EmptyInputError)


async def test_a_command_for_a_parent_is_refused_at_the_root() -> None:
    said = await refusal(Command(graph=Command.PARENT, goto="alpha"), InvalidUpdateError)

    assert said.startswith("There is no parent graph")


async def test_a_resume_without_a_saver_is_refused() -> None:
    said = await refusal(Command(resume=1), NoCheckpointerError, saver=None)

    assert said.startswith("Cannot use Command(resume=...) without checkpointer")


async def test_a_resume_of_a_thread_that_has_nothing_stored_is_refused() -> None:
    assert "has nothing to resume" in await refusal(Command(resume=1), EmptyInputError)


async def test_the_stream_begins_with_the_values_that_a_command_left() -> None:
    graph = chain(["a"]).compile(checkpointer=InMemorySaver())
    command = Command(update={"x": 1}, goto="a")

    assert [event async for event in graph.astream(command, thread(), stream_mode="values")] == [
        {"log": [], "x": 1},
        {"log": ["a"], "x": 1},
    ]


async def test_an_unknown_goto_is_refused_naming_the_nearest() -> None:
    said = await refusal(Command(goto="alpa"), InvalidUpdateError)

    assert re.search(
        "Command.goto of the input goes to 'alpa', which is not a node. Did you mean 'alpha'", said
    )


async def test_a_goto_that_is_no_destination_is_refused() -> None:
    said = await refusal(Command(goto=[3]), InvalidUpdateError)

    assert "Command.goto of the input has the destination 3. Expected a node's name, a Send or END" in said


async def test_an_update_that_is_none_is_refused() -> None:
    said = await refusal(Command(update=3), InvalidUpdateError)

    assert said.startswith("Expected dict, got 3: the update of a Command is a mapping of state keys")


async def test_a_child_graph_takes_a_command() -> None:
    child = chain(["a", "b"]).compile()

    async def calls(state: Log) -> Any:
        return await child.ainvoke(Command(update={"log": ["given"]}, goto="b"))

    graph = chain(["outer"], {"outer": calls}).compile(checkpointer=InMemorySaver())

    assert await graph.ainvoke({}, thread()) == {"log": ["given", "b"]}


@pytest.mark.parametrize("attempts", [1, 2], ids=["run again", "tried again"])
async def test_a_command_to_a_child_graph_is_applied_once_however_often_the_node_runs(attempts: int) -> None:
    failing = [ConnectionError("later")]

    async def b(state: Log) -> Any:
        if failing:
            raise failing.pop()
        return {"log": ["b"]}

    child = chain(["a", "b"], {"b": b}).compile()

    async def calls(state: Log) -> Any:
        return await child.ainvoke(Command(update={"log": ["given"]}, goto="b"))

    policy = RetryPolicy(initial_interval=0, jitter=False, max_attempts=attempts)
    builder = StateGraph(Log).add_node("outer", calls, retry_policy=policy).add_edge(START, "outer")
    graph = builder.compile(checkpointer=InMemorySaver())
    if attempts == 1:
        with pytest.raises(ConnectionError):
            await graph.ainvoke({}, thread())

    assert await graph.ainvoke({} if failing else None, thread()) == {"log": ["given", "b"]}
    assert failing == []


async def test_a_command_that_cannot_be_merged_leaves_nothing_behind() -> None:
    broken = chain(["a"], {"a": fails(ValueError("no"))}).compile(checkpointer=(saver := InMemorySaver()))
    with pytest.raises(ValueError, match="no"):
        await broken.ainvoke({}, thread())
    with pytest.raises(InvalidUpdateError, match="only one value per step"):
        await broken.ainvoke(Command(update=[("x", 1), ("x", 2)]), thread())

    assert await chain(["a"]).compile(checkpointer=saver).ainvoke(None, thread()) == {"log": ["a"]}


async def test_a_key_that_the_state_does_not_have_is_warned_of() -> None:
    graph = chain(["a"], {"a": logs("a")}).compile(name="warned")

    with pytest.warns(UserWarning, match="The input wrote to 'lok', which is not a key of the state"):
        await graph.ainvoke(Command(update={"lok": 1}, goto="a"))


async def test_a_node_that_a_command_sends_to_run_beside_the_start_is_stored_before_the_next_begins() -> None:
    saver = WatchedSaver()
    stored_when_b_began: list[list[int]] = []

    async def b(state: Log) -> None:
        stored_when_b_began.append(saver.steps())

    graph = chain(["a", "b"], {"b": b}).compile(checkpointer=saver)
    await graph.ainvoke({}, thread())
    [first] = [c async for c in saver.alist(thread()) if c.metadata["step"] == -1]
    stored_when_b_began.clear()
    await graph.ainvoke(Command(goto="a"), first.config, durability="sync")

    assert stored_when_b_began[0][-1] == 1
