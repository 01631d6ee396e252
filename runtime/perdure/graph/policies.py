"""How nodes are run: what was asked for one of them, or for all, checked and put together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from perdure.data import CachePolicy, RetryPolicy, TimeoutPolicy
from perdure.errors import GraphValidationError
from perdure.graph.description import Description, NodeDefaults, StateNode
from perdure.pregel.plan import Calling, Policies

Retry = RetryPolicy | Sequence[RetryPolicy] | None
Timeout = float | timedelta | TimeoutPolicy | None


def retry_policies(what: str, given: Retry) -> tuple[RetryPolicy, ...] | None:
    """One policy or several as a tuple; an empty one asks for no retries, None leaves it open."""
    if given is None:
        return None
    policies = (given,) if isinstance(given, RetryPolicy) else tuple(given)
    for policy in policies:
        if not isinstance(policy, RetryPolicy):
            raise GraphValidationError(
                f"The retry_policy of {what} is {given!r}; expected a RetryPolicy, or a sequence of them."
            )
    return policies


def checked_cache_policy(what: str, given: CachePolicy | None) -> CachePolicy | None:
    """The policy, if it is one."""
    if given is not None and not isinstance(given, CachePolicy):
        raise GraphValidationError(f"The cache_policy of {what} is {given!r}; expected a CachePolicy.")
    return given


def timeout_policy(what: str, given: Timeout) -> TimeoutPolicy | None:
    """A policy with its limits in seconds; None if there is no limit. A bare limit is that of a run."""
    if given is None:
        return None
    policy = given if isinstance(given, TimeoutPolicy) else TimeoutPolicy(run_timeout=given)
    if policy.refresh_on not in ("auto", "heartbeat"):
        raise GraphValidationError(
            f"refresh_on must be 'auto' or 'heartbeat'; the timeout of {what} has {policy.refresh_on!r}."
        )
    run = _seconds(what, "run_timeout", policy.run_timeout)
    idle = _seconds(what, "idle_timeout", policy.idle_timeout)
    return None if run is None and idle is None else replace(policy, run_timeout=run, idle_timeout=idle)


def _seconds(what: str, name: str, given: Any) -> float | None:
    if given is None:
        return None
    seconds = given.total_seconds() if isinstance(given, timedelta) else given
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise GraphValidationError(
            f"{name} must be a number of seconds or a timedelta; that of {what} is {given!r}."
        )
    if not seconds > 0:
        raise GraphValidationError(f"{name} must be greater than 0; that of {what} is {given!r}.")
    return float(seconds)


def handlers_of(graph: Description) -> frozenset[str]:
    """The hidden nodes that handle the errors of others."""
    named = (graph.defaults.error_handler, *(node.error_handler for node in graph.nodes.values()))
    return frozenset(name for name in named if name is not None)


def policies_of(
    name: str, node: StateNode, defaults: NodeDefaults, handlers: Iterable[str]
) -> Policies | None:
    """What node `name` asks for, or is given by default; None if that is nothing.

    A node among `handlers` handles the errors of others: its own are handled by nobody, and its
    results are not kept in a cache.
    """
    handles = name in handlers
    policies = Policies(
        retry=_either(node.retry_policy, defaults.retry_policy) or (),
        timeout=_either(node.timeout, defaults.timeout),
        cache=None if handles else _either(node.cache_policy, defaults.cache_policy),
        handler=None if handles else _either(node.error_handler, defaults.error_handler),
    )
    if policies.timeout is not None and node.calling is Calling.THREAD:
        raise GraphValidationError(
            "Node timeouts are only supported for async nodes because sync Python execution cannot be safely "
            f"cancelled in-process. Node '{name}' is sync."
        )
    return None if policies == Policies() else policies


def _either(own: Any, default: Any) -> Any:
    return default if own is None else own
