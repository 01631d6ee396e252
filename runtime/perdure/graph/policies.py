"""How nodes are run: what was asked for one of them, or for all, checked and put together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from perdure.data import CachePolicy, RetryPolicy, TimeoutPolicy
from perdure.errors import GraphValidationError
from perdure.graph.description import Description, NodeDefaults, StateNode
from perdure.pregel import timeouts
from perdure.pregel.plan import Calling, Policies
from perdure.pregel.retry import check_retry_policy

Retry = RetryPolicy | Sequence[RetryPolicy] | None
Timeout = float | timedelta | TimeoutPolicy | None


def retry_policies(what: str, given: Retry) -> tuple[RetryPolicy, ...] | None:
    """One policy or several as a tuple; an empty one asks for no retries, None leaves it open."""
    if given is None:
        return None
    one = isinstance(given, RetryPolicy) or not isinstance(given, Sequence)  # a policy is a tuple itself
    policies: tuple[Any, ...] = (given,) if one else tuple(given)
    with _naming(f"The retry_policy of {what}"):
        for policy in policies:
            check_retry_policy(policy)
    return policies


@contextmanager
def _naming(what: str) -> Iterator[None]:
    """Let an error say whose policy it is that is wrong."""
    try:
        yield
    except (TypeError, GraphValidationError) as error:
        raise type(error)(f"{what} cannot be followed: {error}") from None


def checked_cache_policy(what: str, given: CachePolicy | None) -> CachePolicy | None:
    """The policy, if it is one."""
    if given is not None and not isinstance(given, CachePolicy):
        raise GraphValidationError(f"The cache_policy of {what} is {given!r}; expected a CachePolicy.")
    return given


def timeout_policy(what: str, given: Timeout) -> TimeoutPolicy | None:
    """A policy with its limits in seconds; None if there is no limit. A bare limit is that of a run."""
    with _naming(f"The timeout of {what}"):
        return timeouts.timeout_policy(given)


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
