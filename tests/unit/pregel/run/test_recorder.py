"""The stored state equals the returned state, whoever keeps or changes its lists."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest

from perdure.constants import START
from perdure.data import Durability, Overwrite
from perdure.graph.state import StateGraph
from perdure.pregel.graph import Pregel
from tests.unit.pregel.graphs import Gate, Log, chain, returns, thread
from tests.unit.pregel.savers import WatchedSaver

MODES = pytest.mark.parametrize("durability", ["sync", "async", "exit"])


def by_id(left: list[Any], right: list[Any]) -> list[Any]:
    """Merge messages, in place, into those with the same id."""
    for message in right:
        known = next((other for other in left if other["id"] == message["id"]), None)
        if known is None:
            left.append(message)
        else:
            known.update(message)
    return left


class Appended(TypedDict, total=False):
    msgs: Annotated[list[Any], operator.add]


class Merged(TypedDict, total=False):
    msgs: Annotated[list[Any], by_id]


def messages(schema: type[Any], *actions: Callable[[Any], Any]) -> Pregel:
    """Build a chain of the actions as async nodes."""
    builder, before = StateGraph(schema), START
    for number, action in enumerate(actions):

        async def node(state: Any, action: Callable[[Any], Any] = action) -> Any:
            return action(state)

        builder.add_node(f"n{number}", node).add_edge(before, f"n{number}")
        before = f"n{number}"
    return builder.compile(checkpointer=WatchedSaver())


def two_messages(state: Any) -> Any:
    return {"msgs": [{"id": 1, "text": "a"}, {"id": 2, "text": "b"}]}


def overwrites(wrap: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def node(state: Any) -> Any:
        messages = state["msgs"]
        messages[0]["text"] += "+"
        return {"msgs": wrap(messages)}

    return node


def merges(state: Any) -> Any:
    return {"msgs": [{"id": 1, "text": state["msgs"][0]["text"] + "+"}]}


CASES = pytest.mark.parametrize(
    ("schema", "changes"),
    [
        pytest.param(Appended, overwrites(Overwrite), id="Overwrite"),
        pytest.param(Appended, overwrites(lambda messages: {"__overwrite__": messages}), id="JSON overwrite"),
        pytest.param(Merged, merges, id="merged by id"),
        pytest.param(Merged, overwrites(lambda messages: {"__overwrite__": messages}), id="merged, JSON"),
    ],
)


@MODES
@CASES
async def test_an_element_that_was_changed_in_place_is_stored_as_it_was_returned(
    schema: type[Any], changes: Callable[[Any], Any], durability: Durability
) -> None:
    graph = messages(schema, two_messages, changes, changes, changes)
    first = await graph.ainvoke({}, thread(), durability=durability)
    assert [message["text"] for message in first["msgs"]] == ["a+++", "b"]
    assert (await graph.aget_state(thread())).values == first

    # ... and by a run that begins on what is stored.
    resumed = messages(schema, changes, changes)
    resumed.checkpointer = graph.checkpointer
    second = await resumed.ainvoke({}, thread(), durability=durability)
    assert [message["text"] for message in second["msgs"]] == ["a+++++", "b"]
    assert (await resumed.aget_state(thread())).values == second


@MODES
async def test_what_the_caller_does_to_the_lists_of_its_input_does_not_change_the_state(
    durability: Durability,
) -> None:
    gate, given = Gate(), {"log": ["given"], "y": ["given"]}
    graph = chain(["gate"], {"gate": gate}).compile(checkpointer=WatchedSaver())
    run = asyncio.create_task(graph.ainvoke(given, thread(), durability=durability))
    await gate.entered.wait()
    given["log"].append("late")
    given["y"].append("late")
    gate.open.set()
    expected = {"log": ["given"], "y": ["given"]}

    assert await run == expected
    assert (await graph.aget_state(thread())).values == expected


@MODES
async def test_what_a_node_does_later_to_a_list_that_it_returned_does_not_change_the_state(
    durability: Durability,
) -> None:
    kept: list[str] = ["one"]

    async def changes(state: Log) -> Any:
        kept.append("two")
        return {"x": len(state["y"])}

    graph = chain(["a", "b"], {"a": returns({"y": kept}), "b": changes}).compile(checkpointer=WatchedSaver())
    result = await graph.ainvoke({}, thread(), durability=durability)

    assert result == {"log": [], "x": 1, "y": ["one"]}
    assert (await graph.aget_state(thread())).values == result
