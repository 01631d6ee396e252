"""Policies of nodes, checked and put together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from perdure.data import CachePolicy, RetryPolicy, TimeoutPolicy
from perdure.errors import GraphValidationError
from perdure.pregel.plan import limits
from perdure.pregel.plan.plan import Calling, Policies
from perdure.pregel.plan.retry import check_retry_policy

Retry = RetryPolicy | Sequence[RetryPolicy] | None
Timeout = float | timedelta | TimeoutPolicy | None


def retry_policies(what: str, given: Retry) -> tuple[RetryPolicy, ...] | None:
    """Check retry policies, and return one or several as a tuple.

    An empty tuple means no retries; None means the default.

    Args:
        what: whose policies they are, for errors.
    """
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
    """Add to an error whose policy is wrong."""
    try:
        yield
    except (TypeError, GraphValidationError) as error:
        raise type(error)(f"{what} cannot be followed: {error}") from None


def checked_cache_policy(what: str, given: CachePolicy | None) -> CachePolicy | None:
    """Check a cache policy, and return it.

    Raises GraphValidationError if it is not one, or its ttl is not positive.
    """
    if given is not None and not isinstance(given, CachePolicy):
        raise GraphValidationError(f"The cache_policy of {what} is {given!r}; expected a CachePolicy.")
    if given is not None and given.ttl is not None and not given.ttl > 0:
        raise GraphValidationError(f"The ttl of the cache_policy of {what} must be more than 0 seconds.")
    return given


def timeout_policy(what: str, given: Timeout) -> TimeoutPolicy | None:
    """Check a timeout, and return it as a policy in seconds; None if it sets no limit."""
    with _naming(f"The timeout of {what}"):
        return limits.timeout_policy(given)


def policies_of(
    name: str,
    calling: Calling,
    *,
    retry: tuple[RetryPolicy, ...] | None,
    timeout: TimeoutPolicy | None,
    cache: CachePolicy | None,
    handler: str | None = None,
) -> Policies | None:
    """Put the policies of node `name` together; None if it has none.

    Raises GraphValidationError for a timeout of a sync node.
    """
    if timeout is not None and calling is Calling.THREAD:
        raise GraphValidationError(
            "Node timeouts are only supported for async nodes because sync Python execution cannot be safely "
            f"cancelled in-process. Node '{name}' is sync."
        )
    policies = Policies(retry=retry or (), timeout=timeout, cache=cache, handler=handler)
    return None if policies == Policies() else policies
