"""The output of debug, and the changes in place that it finds."""

from __future__ import annotations

import dataclasses
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any

import anyio.lowlevel
import pytest
from pydantic import BaseModel

from perdure.data import Command, Send
from perdure.errors import GraphRecursionError, InPlaceChangeWarning
from perdure.pregel.events.printing import Printer
from perdure.pregel.plan.plan import Policies
from tests.unit.pregel.graphs import chain, fails, fan, logs, returns, thread, with_policies
from tests.unit.pregel.savers import WatchedSaver


def lines(captured: pytest.CaptureFixture[str]) -> list[str]:
    return captured.readouterr().out.splitlines()


# What is printed


async def test_each_superstep_tells_its_tasks_their_inputs_their_writes_and_what_changed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    goes = Command(update={"x": 2}, goto=Send("b", {"n": 1}))
    builder = fan(["a", "c"], {"a": returns(goes)}).add_node("b", logs("b"))
    await builder.compile(name="mine", debug=True).ainvoke({"x": 1})

    assert lines(capsys) == [
        "[mine step 0] __start__ is given {'x': 1}",
        "[mine step 0] __start__ wrote x = 1; goes to a, c",
        "[mine step 0] changed: x",
        "[mine step 1] a is given {'log': [], 'x': 1}",
        "[mine step 1] c is given {'log': [], 'x': 1}",
        "[mine step 1] a wrote x = 2; goes to Send('b')",
        "[mine step 1] c wrote log = ['c']",
        "[mine step 1] changed: log, x",
        "[mine step 2] b is given {'n': 1}",
        "[mine step 2] b wrote log = ['b']",
        "[mine step 2] changed: log",
    ]


async def test_a_node_that_writes_nothing_and_a_superstep_that_changes_nothing_say_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    await chain(["a"], {"a": returns(None)}).compile(debug=True).ainvoke({"x": 1})

    assert lines(capsys)[-2:] == ["[LangGraph step 1] a wrote nothing", "[LangGraph step 1] changed: nothing"]


async def test_long_values_are_shortened(capsys: pytest.CaptureFixture[str]) -> None:
    await chain(["a"]).compile(debug=True).ainvoke({"y": "long" * 1000, "log": ["x"] * 1000})

    assert all(len(line) < 250 for line in lines(capsys))


async def test_a_failing_superstep_tells_who_failed_and_who_was_stopped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def waits(state: Any) -> None:
        while True:
            await anyio.lowlevel.checkpoint()

    builder = fan(["a", "b", "c"], {"b": fails(ValueError("boom")), "c": waits})
    with pytest.raises(ValueError, match="boom"):
        await builder.compile(debug=True).ainvoke({})

    assert lines(capsys)[-3:] == [
        "[LangGraph step 1] a wrote log = ['a']",
        "[LangGraph step 1] b failed: ValueError('boom')",
        "[LangGraph step 1] c was stopped",
    ]


async def test_writes_that_do_not_fit_together_are_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    builder = fan(["a", "b"], {"a": returns({"x": 1}), "b": returns({"x": 2})})
    with pytest.raises(Exception, match="x"):
        await builder.compile(debug=True).ainvoke({})

    assert [line for line in lines(capsys) if "wrote x" in line] == [
        "[LangGraph step 1] a wrote x = 1",
        "[LangGraph step 1] b wrote x = 2",
    ]


async def test_a_superstep_beyond_the_limit_is_not_said_to_have_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(GraphRecursionError):
        await chain(["a", "b"]).compile(debug=True).ainvoke({}, {"recursion_limit": 1})

    assert "b wrote" not in capsys.readouterr().out


async def test_a_resumed_superstep_tells_whose_writes_were_stored(capsys: pytest.CaptureFixture[str]) -> None:
    broken = [ValueError("boom")]

    async def fails_once(state: Any) -> Any:
        for _ in range(8):
            await anyio.lowlevel.checkpoint()
        if broken:
            raise broken.pop()
        return {"log": ["b"]}

    graph = fan(["a", "b"], {"b": fails_once}).compile(checkpointer=WatchedSaver())
    with pytest.raises(ValueError, match="boom"):
        await graph.ainvoke({}, thread())
    await graph.ainvoke(None, thread(), debug=True)

    assert lines(capsys) == [
        "[LangGraph step 1] a is given {'log': []} (finished before; its stored writes are used)",
        "[LangGraph step 1] b is given {'log': []}",
        "[LangGraph step 1] b wrote log = ['b']",
        "[LangGraph step 1] changed: log",
    ]


async def test_a_handler_is_told_of_beside_the_node_that_it_runs_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def handles(state: Any, error: Any = None) -> Any:
        return {"log": ["handled"]}

    graph = with_policies(
        chain(["a"], {"a": fails(ValueError("boom"))}).compile(),
        {"a": Policies(handler="handler")},
        {"handler": handles},
    )
    await graph.ainvoke({}, debug=True)

    assert lines(capsys)[-3:] == [
        "[LangGraph step 1] a failed: ValueError('boom')",
        "[LangGraph step 1] handler wrote log = ['handled']",
        "[LangGraph step 1] changed: log",
    ]


# Who is told of


async def test_debug_is_said_at_compile_or_by_the_call_which_wins(capsys: pytest.CaptureFixture[str]) -> None:
    quiet, loud = chain(["a"]).compile(), chain(["a"]).compile(debug=True)

    await quiet.ainvoke({})
    await loud.ainvoke({}, debug=False)
    assert lines(capsys) == []
    await quiet.ainvoke({}, debug=True)
    assert len(lines(capsys)) == 6
    async for _ in quiet.astream({}, debug=True):
        pass
    assert len(lines(capsys)) == 6
    async for _ in loud.astream({}, debug=False):
        pass
    assert lines(capsys) == []


async def test_a_graph_below_a_node_is_told_of_with_the_one_around_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    below = chain(["inner"]).compile(name="below")

    async def calls(state: Any) -> Any:
        return await below.ainvoke({})

    await chain(["outer"], {"outer": calls}).compile(debug=True).ainvoke({})

    assert any(line.startswith("[below") and "inner wrote" in line for line in lines(capsys))


async def test_without_debug_nothing_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    def watched(*_: Any) -> None:
        raise AssertionError("a superstep was watched")

    monkeypatch.setattr(Printer, "__init__", watched)

    assert await chain(["a"]).compile().ainvoke({}) == {"log": ["a"]}


# Changes in place


@dataclasses.dataclass
class Box:
    inside: Any


class Model(BaseModel):
    inside: Any


def boxed() -> dict[str, Any]:
    return {
        "deep": [{"n": [1]}],
        "box": Box([1]),
        "model": Model(inside={"n": 1}),
        "set": {1},
        "deque": deque(),
    }


def changes_deep(state: Any) -> None:
    state["y"]["deep"][0]["n"].append(2)


def sets_item(state: Any) -> None:
    state["y"]["deep"][0]["m"] = 1


def changes_attribute(state: Any) -> None:
    state["y"]["box"].inside = 5


def changes_in_attribute(state: Any) -> None:
    state["y"]["box"].inside.append(5)


def changes_model(state: Any) -> None:
    state["y"]["model"].inside["n"] = 2


def changes_set(state: Any) -> None:
    state["y"]["set"].add(2)


def changes_deque(state: Any) -> None:
    state["y"]["deque"].append(2)


def replaces_value(state: Any) -> None:
    state["y"]["deep"][0]["n"][0] = 7


def appends_to_its_copy(state: Any) -> None:
    state["log"].append("lost")


CHANGES: list[tuple[Callable[[Any], None], str]] = [
    (changes_deep, "input['y']['deep'][0]['n'] (list)"),
    (sets_item, "input['y']['deep'][0] (dict)"),
    (changes_attribute, "input['y']['box'] (Box)"),
    (changes_in_attribute, "input['y']['box'].inside (list)"),
    (changes_model, "input['y']['model'].inside (dict)"),
    (changes_set, "input['y']['set'] (set)"),
    (changes_deque, "input['y']['deque'] (deque)"),
    (replaces_value, "input['y']['deep'][0]['n'] (list)"),
    (appends_to_its_copy, "input['log'] (list)"),
]


@pytest.mark.parametrize(("change", "place"), CHANGES, ids=[change.__name__ for change, _ in CHANGES])
async def test_what_a_node_changes_in_place_and_does_not_return_is_named(
    change: Callable[[Any], None], place: str
) -> None:
    async def node(state: Any) -> None:
        change(state)

    with pytest.warns(InPlaceChangeWarning) as caught:
        await chain(["a"], {"a": node}).compile(debug=True).ainvoke({"y": boxed()})

    [warning] = caught
    assert str(warning.message).startswith(f"Node 'a' changed {place} in place and did not return it:")


@pytest.mark.parametrize("change", [change for change, _ in CHANGES])
async def test_what_it_changes_and_returns_is_not(change: Callable[[Any], None]) -> None:
    async def node(state: Any) -> Any:
        change(state)
        return state

    await chain(["a"], {"a": node}).compile(debug=True).ainvoke({"y": boxed()})


async def test_returning_the_changed_part_under_any_key_or_in_a_send_is_returning_it() -> None:
    async def node(state: Any) -> Any:
        state["y"]["deep"][0]["n"].append(2)
        state["y"]["box"].inside.append(5)
        return Command(update={"x": state["y"]["deep"]}, goto=Send("b", state["y"]["box"]))

    builder = chain(["a"], {"a": node}).add_node("b", returns(None))
    await builder.compile(debug=True).ainvoke({"y": boxed()})


async def test_what_a_node_makes_of_its_own_mapping_is_its_own_affair() -> None:
    async def node(state: Any) -> Any:
        state["scratch"] = 1
        del state["x"]

    assert await chain(["a"], {"a": node}).compile(debug=True).ainvoke({"x": 1}) == {"log": [], "x": 1}


async def test_of_several_nodes_that_had_the_value_all_are_named() -> None:
    async def changes(state: Any) -> Any:
        state["y"]["deep"].append(1)

    async def looks(state: Any) -> Any:
        return {"log": [str(len(state["y"]))]}

    builder = fan(["a", "b"], {"a": looks, "b": changes})
    with pytest.warns(
        InPlaceChangeWarning, match=r"One of the nodes 'a', 'b' changed input\['y'\]\['deep'\]"
    ):
        await builder.compile(debug=True).ainvoke({"y": boxed()})


async def test_a_change_in_what_was_sent_is_found_too() -> None:
    async def changes(given: Any) -> None:
        given["items"][0].append(1)

    builder = chain(["a"], {"a": returns(Send("b", {"items": [[0]]}))}).add_node("b", changes)
    with pytest.warns(InPlaceChangeWarning, match=r"Node 'b' changed input\['items'\]\[0\] \(list\)"):
        await builder.compile(debug=True).ainvoke({})


async def test_a_node_that_fails_after_a_change_in_place_is_named_with_its_error() -> None:
    async def changes(state: Any) -> None:
        state["y"]["deep"].append(1)
        raise ValueError("boom")

    with (
        pytest.warns(InPlaceChangeWarning, match="Node 'a' changed input"),
        pytest.raises(ValueError, match="boom"),
    ):
        await chain(["a"], {"a": changes}).compile(debug=True).ainvoke({"y": boxed()})


async def test_where_the_warning_is_an_error_it_stops_the_run_and_what_was_written_is_told_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def changes(state: Any) -> Any:
        state["y"]["deep"].append(1)
        return {"x": 1}

    with pytest.raises(InPlaceChangeWarning):
        await chain(["a"], {"a": changes}).compile(debug=True).ainvoke({"y": boxed()})

    assert lines(capsys)[-1] == "[LangGraph step 1] a wrote x = 1"
    assert capsys.readouterr().out == ""


async def test_values_that_contain_themselves_are_looked_through_once() -> None:
    loop: list[Any] = [1]
    loop.append(loop)

    assert (await chain(["a"]).compile(debug=True).ainvoke({"y": loop}))["log"] == ["a"]


async def test_without_debug_a_change_in_place_is_not_looked_for() -> None:
    async def node(state: Any) -> None:
        state["y"]["deep"].append(1)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await chain(["a"], {"a": node}).compile().ainvoke({"y": boxed()})
