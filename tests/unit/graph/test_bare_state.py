"""A state that is one value: no keys, the value itself goes in, through the nodes, and comes out."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

import pytest

from perdure.checkpoint.memory import InMemorySaver
from perdure.constants import START
from perdure.data import Command, Overwrite, Send
from perdure.errors import EmptyInputError, InvalidUpdateError, PerdureWarning
from perdure.graph.state import StateGraph
from perdure.pregel.graph import Pregel
from tests.unit.pregel.graphs import ends, returns, thread

Words = Annotated[list[str], operator.add]


def words(*results: Any, schema: Any = Words) -> Pregel:
    """Build nodes that return `results` in turn."""
    builder = StateGraph(schema)
    names = [f"n{number}" for number in range(len(results))]
    for before, name, result in zip((START, *names), names, results, strict=False):
        builder.add_node(name, returns(result)).add_edge(before, name)
    return builder.compile(name="words")


async def test_the_value_goes_in_and_comes_out_as_it_is() -> None:
    async def double(number: int) -> int:
        return number * 2

    graph = StateGraph(int).add_node(double).add_edge(START, "double").compile()

    assert await graph.ainvoke(21) == 42


async def test_a_reducer_reduces_what_nodes_return() -> None:
    assert await words(["b"], None, ["c"]).ainvoke(["a"]) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("result", "value"),
    [
        ({"a": 1}, {"a": 1}),
        (Command(update={"a": 1}), {"a": 1}),
        (Command(update=[("a", 1)]), [("a", 1)]),
        (Command(update=5), 5),
        ([Command(update=5)], 5),
        (Command(), 0),
        (None, 0),
        ([1, 2], [1, 2]),
        ("x", "x"),
        (Send("n1", 1), 0),
        ([Send("n1", 1), {"a": 1}], {"a": 1}),
        (Overwrite(1), Overwrite(1)),
    ],
    ids=repr,
)
async def test_whatever_a_node_returns_is_the_value(result: Any, value: Any) -> None:
    builder = StateGraph(object).add_node("n0", returns(result)).add_node("n1", returns(None))

    assert await builder.add_edge(START, "n0").compile().ainvoke(0) == value


async def test_a_path_is_given_the_value_as_its_node_leaves_it() -> None:
    seen: list[Any] = []
    builder = StateGraph(Words).add_node("a", returns(["b"])).add_edge(START, "a")
    graph = builder.add_conditional_edges("a", ends(seen)).compile()

    await graph.ainvoke(["a"])
    assert seen == [["a", "b"]]


async def test_events_carry_the_bare_value() -> None:
    graph = words(["b"], ["c"])
    events = [event async for event in graph.astream(["a"], stream_mode=["values", "updates"])]

    assert events == [
        ("values", ["a"]),
        ("updates", {"n0": ["b"]}),
        ("values", ["a", "b"]),
        ("updates", {"n1": ["c"]}),
        ("values", ["a", "b", "c"]),
    ]


async def test_what_a_reader_does_to_an_event_changes_nothing() -> None:
    last: Any = None
    async for _, payload in words(["b"], ["c"]).astream(["a"], stream_mode=["values", "updates"]):
        (payload if isinstance(payload, list) else next(iter(payload.values()))).append("changed")
        last = payload

    assert last == ["a", "b", "c", "changed"]


async def test_a_thread_at_rest_shows_the_bare_value() -> None:
    graph = Pregel.from_plan(words(["b"]).plan, checkpointer=InMemorySaver())

    assert (await graph.aget_state(thread())).values is None
    assert await graph.ainvoke(["a"], thread()) == ["a", "b"]
    assert (await graph.aget_state(thread())).values == ["a", "b"]
    assert await graph.ainvoke(["c"], thread()) == ["a", "b", "c", "b"]


async def test_a_task_that_has_finished_shows_the_bare_value_it_wrote() -> None:
    async def fails(state: Any) -> Any:
        raise ValueError("no")

    builder = StateGraph(Words).add_node("a", returns(["b"])).add_node("b", fails)
    graph = builder.add_edge(START, "a").add_edge(START, "b").compile(checkpointer=InMemorySaver())
    with pytest.raises(ValueError, match="no"):
        await graph.ainvoke(["a"], thread())

    snapshot = await graph.aget_state(thread())
    assert [(task.name, task.result) for task in snapshot.tasks] == [("a", ["b"]), ("b", None)]
    assert snapshot.values == ["a", "b"]


async def test_none_is_no_input_here_either() -> None:
    with pytest.raises(EmptyInputError):
        await words(["b"]).ainvoke(None)


async def test_a_command_for_an_unknown_node_is_refused() -> None:
    with pytest.raises(InvalidUpdateError, match=r"goes to 'nn', which is not a node"):
        await words(Command(goto="nn")).ainvoke([])


async def test_a_bare_key_beside_others_is_written_by_a_command() -> None:
    class Key(TypedDict):
        x: int

    builder = StateGraph(int, output_schema=Key).add_node("a", returns(Command(update=5)))
    graph = builder.add_node("b", returns({"x": 1})).add_edge(START, "a").add_edge("a", "b").compile()

    assert await graph.ainvoke(1) == {"x": 1}
    assert await graph.ainvoke(1, output_keys="__root__") == 5


async def test_what_is_no_type_is_warned_of_and_taken_as_a_bare_value() -> None:
    with pytest.warns(PerdureWarning, match=r"Invalid state_schema: 'State'\. Expected a type or Annotated"):
        builder = StateGraph("State")

    assert await builder.add_node("a", returns(1)).add_edge(START, "a").compile().ainvoke(0) == 1
