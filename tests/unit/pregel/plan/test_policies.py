"""Policies of nodes are checked when they are given, in every place."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from perdure.channels import LastValue
from perdure.data import CachePolicy, RetryPolicy, TimeoutPolicy
from perdure.errors import GraphValidationError
from perdure.pregel import NodeBuilder, Pregel
from perdure.pregel.plan.policies import checked_cache_policy, retry_policies, timeout_policy

THREE: Any = 3
SIXTY: Any = 60
ONCE, OFTEN = RetryPolicy(max_attempts=1), RetryPolicy(max_attempts=9)


@pytest.mark.parametrize("ttl", [0, -2, float("nan")])
def test_a_cache_policy_that_keeps_nothing_is_refused(ttl: float) -> None:
    with pytest.raises(GraphValidationError, match="ttl of the cache_policy of node 'a' must be more than 0"):
        checked_cache_policy("node 'a'", CachePolicy(ttl=ttl))


@pytest.mark.parametrize(
    ("given", "made"),
    [(None, None), (ONCE, (ONCE,)), ([ONCE, OFTEN], (ONCE, OFTEN)), ((), ())],
)
def test_one_retry_policy_or_several_make_a_tuple(given: Any, made: Any) -> None:
    assert retry_policies("node 'a'", given) == made


@pytest.mark.parametrize("given", [[3], (ONCE, "x")])
def test_what_is_no_retry_policy_is_refused(given: Any) -> None:
    with pytest.raises(
        TypeError, match=r"The retry_policy of node 'a' .*: A retry policy is a RetryPolicy, not"
    ):
        retry_policies("node 'a'", given)


def test_what_is_no_cache_policy_is_refused() -> None:
    with pytest.raises(
        GraphValidationError, match="The cache_policy of node 'a' is 60; expected a CachePolicy"
    ):
        checked_cache_policy("node 'a'", SIXTY)


@pytest.mark.parametrize(
    ("given", "made"),
    [
        (None, None),
        (2, TimeoutPolicy(run_timeout=2.0)),
        (0.5, TimeoutPolicy(run_timeout=0.5)),
        (timedelta(minutes=1), TimeoutPolicy(run_timeout=60.0)),
        (TimeoutPolicy(), None),
        (TimeoutPolicy(refresh_on="heartbeat"), None),
        (TimeoutPolicy(run_timeout=timedelta(seconds=3)), TimeoutPolicy(run_timeout=3.0)),
        (
            TimeoutPolicy(idle_timeout=timedelta(seconds=1), refresh_on="heartbeat"),
            TimeoutPolicy(idle_timeout=1.0, refresh_on="heartbeat"),
        ),
    ],
)
def test_a_timeout_becomes_a_policy_in_seconds(given: Any, made: Any) -> None:
    assert timeout_policy("node 'a'", given) == made


# At the lower level


def made(node: NodeBuilder | None = None, **more: Any) -> Pregel:
    return Pregel(
        nodes={"n": (node or NodeBuilder()).subscribe_only("x").write_to("y")},
        channels={"x": LastValue(int), "y": LastValue(int)},
        input_channels="x",
        output_channels="y",
        **more,
    )


@pytest.mark.parametrize(
    ("asks", "message"),
    [
        (
            lambda: NodeBuilder().add_retry_policies(RetryPolicy(max_attempts=0)),
            "The retry_policy of a node cannot be followed: RetryPolicy.max_attempts must be at least 1",
        ),
        (
            lambda: NodeBuilder().add_cache_policy(THREE),
            "The cache_policy of a node is 3; expected a CachePolicy",
        ),
        (lambda: NodeBuilder().set_timeout(0), "The timeout of a node .* must be greater than 0, not 0"),
        (lambda: made(retry_policy=[3]), "The retry_policy of the graph .* is a RetryPolicy, not 3"),
        (lambda: made(cache_policy=3), "The cache_policy of the graph is 3; expected a CachePolicy"),
    ],
)
def test_what_cannot_be_followed_is_refused_where_it_is_said(asks: Callable[[], Any], message: str) -> None:
    with pytest.raises((GraphValidationError, TypeError), match=message):
        asks()


def test_a_sync_node_cannot_have_a_timeout() -> None:
    with pytest.raises(GraphValidationError, match=r"only supported for async .*Node 'n' is sync\."):
        made(NodeBuilder().do(lambda given: given).set_timeout(1))
