"""Time limits, converted to seconds."""

from __future__ import annotations

from datetime import timedelta

from perdure.data import TimeoutPolicy
from perdure.errors import GraphValidationError


def timeout_policy(given: float | timedelta | TimeoutPolicy | None) -> TimeoutPolicy | None:
    """Return a policy with its limits in seconds; None if it sets no limit.

    Args:
        given: a policy; a number or a timedelta is a run timeout.

    Raises:
        TypeError: a limit is neither a number nor a timedelta.
        GraphValidationError: a limit is not positive.
    """
    if given is None:
        return None
    policy = given if isinstance(given, TimeoutPolicy) else TimeoutPolicy(run_timeout=given)
    run = seconds(policy.run_timeout, "run_timeout")
    idle = seconds(policy.idle_timeout, "idle_timeout")
    if policy.refresh_on not in ("auto", "heartbeat"):
        raise GraphValidationError(f"refresh_on must be 'auto' or 'heartbeat', not {policy.refresh_on!r}.")
    if run is None and idle is None:
        return None
    return TimeoutPolicy(run_timeout=run, idle_timeout=idle, refresh_on=policy.refresh_on)


def seconds(limit: object, name: str) -> float | None:
    """Convert a limit to seconds.

    Args:
        name: the name of the limit, for errors; these are those of `timeout_policy`.
    """
    if limit is None:
        return None
    if isinstance(limit, timedelta):
        limit = limit.total_seconds()
    if not isinstance(limit, int | float) or isinstance(limit, bool):
        raise TypeError(f"{name} must be a number of seconds or a timedelta, not {limit!r}.")
    if not limit > 0:
        raise GraphValidationError(f"{name} must be greater than 0, not {limit!r}.")
    return float(limit)
