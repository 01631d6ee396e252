"""Policies of nodes are checked when they are given, and combined at compile()."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from perdure.constants import START
from perdure.data import CachePolicy, RetryPolicy, TimeoutPolicy
from perdure.errors import GraphValidationError
from perdure.graph.state import StateGraph
from perdure.pregel.plan.plan import Policies
from tests.unit.pregel.graphs import Log, logs

ONCE, OFTEN = RetryPolicy(max_attempts=1), RetryPolicy(max_attempts=9)
CACHED = CachePolicy(ttl=5)


async def handle(state: Log) -> None: ...


def policies(builder: StateGraph, node: str = "a") -> Policies | None:
    return builder.add_edge(START, "a").compile().plan.nodes[node].policies


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (0, "The timeout of node 'a' .*: run_timeout must be greater than 0, not 0"),
        (-1.5, "run_timeout must be greater than 0"),
        (float("nan"), "run_timeout must be greater than 0"),
        (timedelta(0), "run_timeout must be greater than 0"),
        (TimeoutPolicy(idle_timeout=-1), "idle_timeout must be greater than 0, not -1"),
        (TimeoutPolicy(refresh_on="always"), "refresh_on must be 'auto' or 'heartbeat'.*'always'"),  # type: ignore[arg-type]
        ("3", "The timeout of node 'a' .*: run_timeout must be a number of seconds or a timedelta, not '3'"),
        (True, "run_timeout must be a number of seconds"),
    ],
)
def test_a_timeout_that_cannot_be_meant_is_refused(given: Any, message: str) -> None:
    with pytest.raises((GraphValidationError, TypeError), match=message):
        StateGraph(Log).add_node("a", logs("a"), timeout=given)


def test_a_node_of_which_nothing_is_asked_has_no_policies() -> None:
    assert policies(StateGraph(Log).add_node("a", logs("a"))) is None
    assert (
        policies(StateGraph(Log).add_node("a", logs("a"), timeout=TimeoutPolicy(), retry_policy=())) is None
    )


@pytest.mark.parametrize(
    ("asked", "made"),
    [
        ({"retry_policy": ONCE}, Policies(retry=(ONCE,))),
        ({"retry_policy": [ONCE, OFTEN]}, Policies(retry=(ONCE, OFTEN))),
        ({"cache_policy": CACHED}, Policies(cache=CACHED)),
        ({"timeout": 3}, Policies(timeout=TimeoutPolicy(run_timeout=3.0))),
    ],
    ids=["retry", "retries", "cache", "timeout"],
)
def test_what_is_asked_of_a_node_or_of_all_reaches_the_plan(asked: dict[str, Any], made: Policies) -> None:
    assert policies(StateGraph(Log).add_node("a", logs("a"), **asked)) == made
    assert policies(StateGraph(Log).add_node("a", logs("a")).set_node_defaults(**asked)) == made
    assert policies(StateGraph(Log).set_node_defaults(**asked).add_node("a", logs("a"))) == made


def test_a_handler_is_a_hidden_node_and_handles_what_it_was_given_for() -> None:
    builder = StateGraph(Log).add_node("a", logs("a"), error_handler=handle).add_node("b", logs("b"))
    plan = builder.add_edge(START, "a").compile().plan

    assert list(plan.nodes) == [START, "a", "__error_handler__a", "b"]
    assert plan.nodes["a"].policies == Policies(handler="__error_handler__a")
    assert plan.nodes["b"].policies is None
    assert plan.nodes["__error_handler__a"].policies is None
    assert plan.nodes["__error_handler__a"].action is handle


def test_a_default_handler_handles_all_that_have_none_but_no_handler() -> None:
    async def other(state: Log) -> None: ...

    builder = StateGraph(Log).add_node("a", logs("a"), error_handler=handle).add_node("b", logs("b"))
    plan = builder.set_node_defaults(error_handler=other).add_edge(START, "a").compile().plan

    assert {name: spec.policies and spec.policies.handler for name, spec in plan.nodes.items()} == {
        START: None,
        "a": "__error_handler__a",
        "__error_handler__a": None,
        "b": "__default_error_handler__",
        "__default_error_handler__": None,
    }
    assert plan.nodes["__default_error_handler__"].action is other


def test_a_handler_takes_retries_and_timeout_from_the_defaults_and_no_cache() -> None:
    builder = StateGraph(Log).add_node("a", logs("a"), error_handler=handle, retry_policy=ONCE)
    builder.set_node_defaults(retry_policy=OFTEN, timeout=2, cache_policy=CACHED)

    limit = TimeoutPolicy(run_timeout=2.0)
    assert policies(builder, "__error_handler__a") == Policies(retry=(OFTEN,), timeout=limit)
    node = builder.compile().plan.nodes["a"]
    assert node.policies == Policies(retry=(ONCE,), timeout=limit, cache=CACHED, handler="__error_handler__a")


def test_what_a_node_says_counts_more_than_the_defaults_and_no_retries_can_be_said() -> None:
    builder = StateGraph(Log).add_node("a", logs("a"), retry_policy=(), timeout=1, cache_policy=CachePolicy())
    builder.set_node_defaults(retry_policy=OFTEN, timeout=2, cache_policy=CACHED)

    assert policies(builder) == Policies(timeout=TimeoutPolicy(run_timeout=1.0), cache=CachePolicy())


def test_defaults_that_are_said_later_replace_only_what_they_name() -> None:
    builder = StateGraph(Log).add_node("a", logs("a")).set_node_defaults(retry_policy=ONCE, timeout=2)
    builder.set_node_defaults(timeout=3, error_handler=handle).set_node_defaults(error_handler=logs("b"))

    made = policies(builder)
    assert made == Policies(
        retry=(ONCE,), timeout=TimeoutPolicy(run_timeout=3.0), handler="__default_error_handler__"
    )
    assert builder.nodes["__default_error_handler__"].action is not handle


def sync(state: Log) -> None: ...


@pytest.mark.parametrize("by_default", [True, False])
def test_a_sync_node_cannot_have_a_timeout(by_default: bool) -> None:
    builder = StateGraph(Log).add_node("a", sync, timeout=None if by_default else 1)
    if by_default:
        builder.set_node_defaults(timeout=1)

    with pytest.raises(
        GraphValidationError, match=r"Node timeouts are only supported for async .*Node 'a' is sync\."
    ):
        policies(builder)
