"""The assembly of nodes and channels, which are refused if they do not fit together."""

from __future__ import annotations

import operator
from typing import Any

import pytest

from perdure.channels import (
    BinaryOperatorAggregate,
    DeltaChannel,
    EphemeralValue,
    LastValue,
    LastValueAfterFinish,
    NamedBarrierValue,
    Topic,
    UntrackedValue,
)
from perdure.constants import TASKS
from perdure.data import CachePolicy, RetryPolicy, TimeoutPolicy
from perdure.errors import EmptyInputError, GraphValidationError, InvalidUpdateWarning
from perdure.pregel import NodeBuilder, Pregel
from perdure.pregel.plan.plan import Policies


def node(subscribes: str = "x") -> NodeBuilder:
    return NodeBuilder().subscribe_to(subscribes)


def made(**changes: Any) -> Pregel:
    """Build a graph whose node `n` copies x to y, with some options changed."""
    parts: dict[str, Any] = {
        "nodes": {"n": NodeBuilder().subscribe_only("x").write_to("y")},
        "channels": {"x": LastValue(int), "y": LastValue(int)},
        "input_channels": "x",
        "output_channels": "y",
    }
    return Pregel(**{**parts, **changes})


# What is refused


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes": {"__start__": node()}}, "Node name '__start__' is reserved"),
        ({"nodes": {"__error__": node()}}, "Node name '__error__' is reserved"),
        ({"nodes": {"a|b": node()}}, r"'\|' is a reserved character and is not allowed in the node names"),
        ({"nodes": {"a:b": node()}}, "':' is a reserved character"),
        ({"channels": {"x": LastValue(int), TASKS: Topic(int)}}, "Channel '__pregel_tasks' is reserved"),
        ({"channels": {"x": LastValue(int), "branch:to:n": LastValue(int)}}, "'branch:to:n' is reserved"),
        ({"nodes": {"n": str}}, r"Node 'n' is <class 'str'>; expected a NodeBuilder, such as Node"),
        (
            {"channels": {"x": LastValue}},
            r"Channel 'x' is <class .*; expected an instance, such as LastValue\(str",
        ),
        ({"channels": {"x": int}}, "Channel 'x' is <class 'int'>; expected an instance"),
        ({"nodes": {"n": NodeBuilder().read_from("x")}}, "Node 'n' subscribes to no channel"),
        (
            {"nodes": {"n": node().read_from("q")}},
            r"Node n reads channel 'q' not in known channels: x, y\.",
        ),
        (
            {"nodes": {"n": NodeBuilder().subscribe_to("q", read=False)}},
            r"Node n: Subscribed channel 'q' not in known channels: x, y\.",
        ),
        (
            {"nodes": {"n": node().write_to("q")}},
            r"Node n writes to channel 'q' not in known channels: x, y\.",
        ),
        ({"nodes": {"n": node().write_to(q=1)}}, "Node n writes to channel 'q'"),
        ({"input_channels": "q"}, "Input channel 'q' not in known channels: x, y"),
        ({"input_channels": ["x", "q"]}, "Input channel 'q' not in known channels: x, y"),
        ({"input_channels": "y"}, "Input channel y is not subscribed to by any node"),
        ({"input_channels": ["y"]}, "None of the input channels y are subscribed to by any node"),
        ({"output_channels": "q"}, "Output channel 'q' not in known channels: x, y"),
        ({"output_channels": ["y", "q"]}, "Output channel 'q' not in known channels"),
        ({"stream_channels": "q"}, "Output channel 'q' not in known channels"),
        ({"interrupt_before_nodes": ["m"]}, r"Node 'm' not in nodes\. Known: n\."),
        ({"interrupt_after_nodes": ["m"]}, "Node 'm' not in nodes"),
    ],
)
def test_parts_that_do_not_hang_together_are_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphValidationError, match=message):
        made(**changes)


def test_checking_can_be_put_off_to_the_first_use_or_until_it_is_asked_for() -> None:
    graph = made(output_channels="q", auto_validate=False)

    for use in (graph.validate, lambda: graph.plan, lambda: graph.nodes):
        with pytest.raises(GraphValidationError, match="Output channel 'q'"):
            use()
    good = made(auto_validate=False)
    assert good.validate() is good


def test_breakpoints_at_all_nodes_name_none_in_particular() -> None:
    assert made(interrupt_before_nodes="*").interrupt_before_nodes == "*"


# What is made of them


def test_channels_are_sorted_by_what_the_engine_must_know_of_them() -> None:
    plan = made(
        channels={
            "x": LastValue(int),
            "y": LastValue(int),
            "sum": BinaryOperatorAggregate(int, operator.add),
            "max": BinaryOperatorAggregate(int, max),
            "delta": DeltaChannel(max, dict),
            "topic": Topic(int),
            "barrier": NamedBarrierValue(str, {"a"}),
            "late": LastValueAfterFinish(int),
            "secret": UntrackedValue(int),
            "event": EphemeralValue(int),
        }
    ).plan

    assert plan.plain == {"x", "y"}
    assert plan.reduced == {"sum", "max", "delta"}
    assert plan.appended == {"sum"}
    assert plan.barriers == {"barrier", "late"}
    assert plan.deferred == {"late"}
    assert plan.untracked == {"secret"}
    assert not plan.triggers
    assert plan.initial == ("sum", "max", "delta")
    assert plan.state_keys == plan.channels.keys() - {TASKS}


def test_the_graphs_channels_are_its_own_and_empty_and_know_their_names() -> None:
    given: LastValue[int] = LastValue(int)
    given.update([5])
    graph = made(channels={"x": given, "y": LastValue(int)})

    assert graph.channels["x"] is not given
    assert not graph.channels["x"].is_available()
    assert (graph.channels["x"].key, given.key) == ("x", "")


def test_a_nodes_own_policies_come_before_the_graphs() -> None:
    own, others, cache = RetryPolicy(max_attempts=2), RetryPolicy(max_attempts=9), CachePolicy(ttl=1)
    timed = NodeBuilder().subscribe_to("x").add_retry_policies(own).set_timeout(3)
    graph = made(
        nodes={"own": timed, "plain": node()}, retry_policy=others, cache_policy=cache, input_channels="x"
    )

    assert graph.nodes["own"].policies == Policies(
        retry=(own,), timeout=TimeoutPolicy(run_timeout=3), cache=cache
    )
    assert graph.nodes["plain"].policies == Policies(retry=(others,), cache=cache)
    assert made(retry_policy=[own, others]).nodes["n"].policies == Policies(retry=(own, others))
    assert made().nodes["n"].policies is None


# What an input may be


@pytest.mark.parametrize("given", [0, "text", [1], {"x": 1}, {}])
async def test_one_input_channel_takes_any_value(given: Any) -> None:
    assert await made().ainvoke(given) == given


async def test_several_input_channels_take_a_mapping_of_them() -> None:
    graph = made(input_channels=["x", "y"], output_channels=["x", "y"])

    assert await graph.ainvoke({"y": 2}) == {"y": 2}
    with pytest.raises(TypeError, match=r"Expected chunk to be a dict, got list.*channels, x, y"):
        await graph.ainvoke([1])


async def test_an_input_without_any_of_the_channels_is_none() -> None:
    graph = made(input_channels=["x", "y"])

    with pytest.raises(EmptyInputError, match="Received no input for x, y"):
        await graph.ainvoke({})
    with (
        pytest.warns(InvalidUpdateWarning, match="'z', which is not an input channel of graph 'LangGraph'"),
        pytest.raises(EmptyInputError),
    ):
        await graph.ainvoke({"z": 1})


async def test_an_unknown_key_of_the_input_is_warned_of_with_the_nearest_name() -> None:
    graph = made(
        nodes={"n": NodeBuilder().subscribe_only("price").write_to("y")},
        channels={"price": LastValue(int), "y": LastValue(int)},
        input_channels=["price"],
    )
    with pytest.warns(InvalidUpdateWarning, match="'prize', which is not.* Did you mean 'price'"):
        assert await graph.ainvoke({"price": 1, "prize": 2}) == 1
