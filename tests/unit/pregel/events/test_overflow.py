"""Bodies that put more events than readers take, without awaiting anything."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.data import RetryPolicy, Send
from perdure.errors import StreamOverflowError
from perdure.pregel.events.buffer import MOST_UNREAD
from perdure.pregel.plan.plan import Policies
from tests.unit.pregel.following import Followed, custom, flushes, node, read, writes
from tests.unit.pregel.graphs import chain, fan, returns, settle, with_policies


def overflowing(name: str, most: int) -> str:
    return (
        f"Node '{name}' put more than {most} events into the stream without letting anybody read them. `await"
    )


@pytest.mark.parametrize("most", [100, MOST_UNREAD])
@pytest.mark.parametrize("names", ["a", "ab"], ids=["width 1", "width 2"])
async def test_a_body_that_puts_one_event_too_many_without_awaiting_fails(names: str, most: int) -> None:
    graph = fan(names, {"a": writes(most + 1)}).compile()
    assert graph.most_unread == MOST_UNREAD
    graph.most_unread = most
    told: list[Any] = []
    run = Followed(graph)
    reader = run.reader("custom")
    with pytest.raises(StreamOverflowError, match=overflowing("a", most)):
        await run.run()
    await read(reader, told)

    assert told == list(range(most)), "what it put before is not lost"


async def test_a_body_may_put_as_many_as_are_allowed() -> None:
    graph = chain("ab", {"a": writes(100), "b": writes(100)}).compile()
    graph.most_unread = 100

    assert await custom(graph) == [*range(100)] * 2


async def test_a_body_that_awaits_anything_while_a_reader_takes_events_may_go_on() -> None:
    async def body(state: Any) -> None:
        for _ in range(10):
            await writes(10)(state)
            await settle(5)

    graph = node(body)
    graph.most_unread = 19

    assert len(await custom(graph)) == 100


async def test_bodies_that_run_side_by_side_are_counted_apart() -> None:
    sends = [Send("b", {}) for _ in range(5)]
    graph = chain("a", {"a": returns(sends)}).add_node("b", writes(10)).compile()
    graph.most_unread = 10

    assert len(await custom(graph)) == 50


async def test_another_attempt_is_counted_anew() -> None:
    failing: list[Exception] = [ConnectionError("once")]

    async def body(state: Any) -> None:
        await writes(8)(state)
        if failing:
            raise failing.pop()

    policies = Policies(retry=(RetryPolicy(initial_interval=0, jitter=False),))
    graph = with_policies(node(body), {"a": policies})
    graph.most_unread = 10
    run = Followed(graph)
    told: list[Any] = []
    reader = run.reader("custom")
    await run.run()
    await read(reader, told)

    assert told == [*range(8)] * 2


async def test_the_error_names_the_node_of_the_child_graph() -> None:
    child = chain(["x"], {"x": writes(11)}).compile()
    graph = chain(["a"], {"a": child.ainvoke}).compile()
    graph.most_unread = 10
    with pytest.raises(StreamOverflowError, match=overflowing("x", 10)):
        await custom(graph, subgraphs=True)


async def test_a_streamed_graph_may_not_put_too_much_before_the_reader_around_it_either() -> None:
    async def body(state: Any) -> None:
        for _ in range(100):
            await writes(1)(state)
            await settle(5)  # enough for the inner reader

    child = chain(["x"], {"x": body}).compile()
    inner: list[Any] = []

    async def streams(state: Any) -> None:
        inner.extend(await custom(child))

    graph = node(streams)
    graph.most_unread = 50
    run = Followed(graph)
    run.reader("custom", subgraphs=True)
    with pytest.raises(StreamOverflowError, match=overflowing("x", 50)):
        await run.run()


async def test_a_streamed_graph_may_put_any_number_that_the_reader_around_it_does_not_ask_for() -> None:
    child = chain(["x"], {"x": flushes(100)}).compile()
    inner: list[Any] = []

    async def streams(state: Any) -> None:
        inner.extend(await custom(child))

    graph = node(streams)
    graph.most_unread = 50
    run = Followed(graph)
    run.reader("updates")
    await run.run()

    assert inner == list(range(100))
