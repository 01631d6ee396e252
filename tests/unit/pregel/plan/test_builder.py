"""Nodes of a Pregel are described call by call."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from perdure.channels import BinaryOperatorAggregate, EphemeralValue, LastValue
from perdure.data import CachePolicy, RetryPolicy, TimeoutPolicy
from perdure.errors import GraphValidationError, NodeSignatureError
from perdure.pregel import NodeBuilder, Pregel
from perdure.runtime import get_config


def pick(left: Any, right: Any) -> Any:
    return right


def graph_of(**nodes: NodeBuilder) -> Pregel:
    """Build a graph with the channels a, b and c, of which a and b are the input."""
    return Pregel(
        nodes=nodes,
        channels={"a": LastValue(int), "b": EphemeralValue(int), "c": BinaryOperatorAggregate(int, pick)},
        input_channels=["a", "b"],
        output_channels=["a", "b", "c"],
    )


class Doubles:
    """A runnable with an asynchronous method only."""

    async def ainvoke(self, given: int) -> int:
        return 2 * given


class DoublesInPlace:
    def invoke(self, given: int) -> int:
        return 2 * given


class DoublesWhenCalled:
    async def __call__(self, given: int) -> int:
        return 2 * given


async def double(given: int) -> int:
    return 2 * given


async def times(factor: int, given: int) -> int:
    return factor * given


# What starts a node, and what it is given


async def test_a_node_that_subscribes_only_is_given_the_bare_value() -> None:
    graph = graph_of(n=NodeBuilder().subscribe_only("a").write_to("c"))

    assert await graph.ainvoke({"a": 7}) == {"a": 7, "c": 7}
    assert await graph.ainvoke({"b": 7}) == {"b": 7, "c": 0}


async def test_a_node_that_subscribes_to_several_is_given_a_dict_of_those_that_have_a_value() -> None:
    seen: list[Any] = []
    graph = graph_of(n=NodeBuilder().subscribe_to("a", "b").do(seen.append))
    await graph.ainvoke({"a": 1, "b": 2})
    await graph.ainvoke({"b": 2})

    assert seen == [{"a": 1, "b": 2}, {"b": 2}]


async def test_a_subscription_that_is_not_read_starts_the_node_and_is_not_given() -> None:
    seen: list[Any] = []
    graph = graph_of(n=NodeBuilder().subscribe_to("a", read=False).read_from("b", "c").do(seen.append))
    await graph.ainvoke({"a": 1, "b": 2})
    await graph.ainvoke({"b": 2})

    assert seen == [{"b": 2, "c": 0}]


@pytest.mark.parametrize(
    "begin", [lambda n: n.subscribe_to("x"), lambda n: n.read_from("x"), lambda n: n.subscribe_only("x")]
)
def test_subscribing_only_beside_anything_is_refused(begin: Callable[[NodeBuilder], NodeBuilder]) -> None:
    with pytest.raises(GraphValidationError, match=r"only to channel 'y'.*x.*Use subscribe_to"):
        begin(NodeBuilder()).subscribe_only("y")


def test_reading_more_beside_the_only_subscription_is_refused() -> None:
    with pytest.raises(GraphValidationError, match=r"Cannot add 'y', 'z': the node subscribes only to 'x'"):
        NodeBuilder().subscribe_only("x").subscribe_to("y", "z")
    with pytest.raises(GraphValidationError, match=r"Cannot add 'y': the node subscribes only to 'x'"):
        NodeBuilder().subscribe_only("x").read_from("y")


def test_a_channel_that_is_named_twice_counts_once() -> None:
    node = NodeBuilder().subscribe_to("x", "x").read_from("x").meta("t", "t").build()

    assert (node.triggers, node.channels, node.tags) == (("x",), ("x",), ("t",))


# What it does


@pytest.mark.parametrize(
    "action",
    [double, lambda given: 2 * given, partial(times, 2), Doubles(), DoublesInPlace(), DoublesWhenCalled()],
)
async def test_whatever_can_be_called_is_called(action: Any) -> None:
    graph = graph_of(n=NodeBuilder().subscribe_only("a").do(action).write_to("c"))

    assert await graph.ainvoke({"a": 21}) == {"a": 21, "c": 42}


async def test_sync_actions_run_in_a_thread_and_async_ones_do_not() -> None:
    here = threading.get_ident()
    ran: list[bool] = []

    def told(given: int) -> None:
        ran.append(threading.get_ident() == here)

    async def atold(given: int) -> None:
        told(given)

    for action in (told, atold):
        await graph_of(n=NodeBuilder().subscribe_only("a").do(action)).ainvoke({"a": 1})

    assert ran == [False, True]


async def test_a_node_without_an_action_hands_on_what_it_reads() -> None:
    graph = graph_of(n=NodeBuilder().subscribe_to("a").write_to(c=lambda given: given["a"] + 1))

    assert await graph.ainvoke({"a": 1}) == {"a": 1, "c": 2}


def test_a_second_action_is_refused() -> None:
    with pytest.raises(GraphValidationError, match=r"already does .*double.*; a node has one action"):
        NodeBuilder().do(double).do(double)


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(GraphValidationError, match=r"action 5 of a node is not a function"):
        NodeBuilder().do(5)  # type: ignore[arg-type]


def test_generators_are_refused() -> None:
    def yields(given: Any) -> Iterator[int]:
        yield 1

    async def ayields(given: Any) -> AsyncIterator[int]:
        yield 1

    for generator in (yields, ayields):
        with pytest.raises(NodeSignatureError, match=r"yields.*is a generator\. It must return one value"):
            NodeBuilder().do(generator)


def test_what_takes_no_argument_or_more_than_one_is_refused() -> None:
    actions: list[Any] = [lambda: None, lambda given, config: None]
    for action in actions:
        with pytest.raises(NodeSignatureError, match=r"has the signature \(.*\), but is called with one"):
            NodeBuilder().do(action)


# What it writes


@pytest.mark.parametrize("result", [0, None])
async def test_a_result_is_written_to_every_channel_unless_it_is_none(result: int | None) -> None:
    graph = graph_of(n=NodeBuilder().subscribe_only("a").do(lambda given: result).write_to("b", "c"))
    written = {} if result is None else {"b": 0}

    assert await graph.ainvoke({"a": 5}) == {"a": 5, "c": 0, **written}


async def test_constants_are_written_as_they_are_and_functions_make_of_the_result_what_is_written() -> None:
    node = NodeBuilder().subscribe_only("a").do(double)
    graph = graph_of(n=node.write_to(b=None, c=lambda result: result + 1))

    assert await graph.ainvoke({"a": 5}) == {"a": 5, "b": None, "c": 11}


async def test_a_function_that_makes_none_writes_nothing() -> None:
    graph = graph_of(n=NodeBuilder().subscribe_only("a").write_to(b=lambda result: None))

    assert await graph.ainvoke({"a": 5}) == {"a": 5, "c": 0}


async def test_a_function_that_raises_fails_the_node_by_its_name() -> None:
    graph = graph_of(n=NodeBuilder().subscribe_only("a").write_to(b=lambda result: result / 0))
    with pytest.raises(ZeroDivisionError) as caught:
        await graph.ainvoke({"a": 5})

    assert "During task with name 'n'" in caught.value.__notes__[0]


def test_a_function_that_is_async_is_refused() -> None:
    with pytest.raises(NodeSignatureError, match=r"channel 'c' is made by .*double.*, which is async"):
        NodeBuilder().write_to(c=double)


# How it runs


async def test_tags_and_metadata_are_part_of_the_config_it_runs_under() -> None:
    seen: list[Any] = []

    async def looks(given: Any) -> None:
        seen.append(get_config())

    node = NodeBuilder().subscribe_only("a").meta("mine", "ours", owner="me").meta(level=2).do(looks)
    await graph_of(n=node).ainvoke({"a": 1}, {"tags": ["ours", "run"], "metadata": {"owner": "you", "x": 1}})

    assert seen[0]["tags"] == ["ours", "run", "mine"]
    assert {key: seen[0]["metadata"][key] for key in ("owner", "level", "x", "langgraph_node")} == {
        "owner": "me",
        "level": 2,
        "x": 1,
        "langgraph_node": "n",
    }


def test_policies_are_kept_for_whoever_runs_the_node() -> None:
    first, second, cache = RetryPolicy(max_attempts=2), RetryPolicy(max_attempts=5), CachePolicy(ttl=5)
    node = NodeBuilder().add_retry_policies(first).add_retry_policies(second).add_cache_policy(cache).build()

    assert (node.retry_policies, node.cache_policy) == ((first, second), cache)


@pytest.mark.parametrize(("timeout", "limit"), [(2, 2), (0.5, 0.5), (timedelta(seconds=3), 3)])
def test_a_timeout_is_that_of_an_attempt_unless_it_says_otherwise(timeout: Any, limit: float) -> None:
    policy = TimeoutPolicy(idle_timeout=1)

    assert NodeBuilder().set_timeout(timeout).build().timeout == TimeoutPolicy(run_timeout=limit)
    assert NodeBuilder().set_timeout(policy).build().timeout == policy
    assert NodeBuilder().set_timeout(policy).set_timeout(None).build().timeout is None


def test_what_is_described_later_does_not_change_what_was_built() -> None:
    builder = NodeBuilder().subscribe_to("x").meta(a=1)
    node = builder.build()
    builder.subscribe_to("y").write_to("z").meta("t", a=2)

    assert (node.triggers, node.writes, node.tags, node.metadata) == (("x",), (), (), {"a": 1})


# Graphs as nodes


async def test_a_node_that_is_a_graph_says_so_in_its_spec() -> None:
    double = Pregel(
        nodes={"double": NodeBuilder().subscribe_only("x").do(lambda x: 2 * x).write_to("y")},
        channels={"x": LastValue(int), "y": LastValue(int)},
        input_channels="x",
        output_channels="y",
    )
    graph = Pregel(
        nodes={
            "child": NodeBuilder().subscribe_only("a").do(double).write_to("b"),
            "plain": NodeBuilder().subscribe_only("a").do(lambda a: None),
        },
        channels={"a": LastValue(int), "b": LastValue(int)},
        input_channels="a",
        output_channels="b",
    )

    child = graph.plan.nodes["child"].child
    assert child is not None
    assert child.graph is double
    assert graph.plan.nodes["plain"].child is None
    assert list(graph.get_subgraphs()) == [("child", double)]
    assert await graph.ainvoke(21) == 42
