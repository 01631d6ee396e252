"""Time limits as users write them, in seconds."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from perdure.data import TimeoutPolicy
from perdure.errors import GraphValidationError


def timeout_policy(given: Any) -> TimeoutPolicy | None:
    """What `given` says, in seconds; a number or a timedelta is a run timeout. None if it limits nothing.

    Raises TypeError for what is none of these, GraphValidationError for a limit that is not positive.
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


def seconds(limit: Any, name: str) -> float | None:
    """A limit in seconds. Raises what `timeout_policy` raises, calling it `name`."""
    if limit is None:
        return None
    if isinstance(limit, timedelta):
        limit = limit.total_seconds()
    if not isinstance(limit, int | float) or isinstance(limit, bool):
        raise TypeError(f"{name} must be a number of seconds or a timedelta, not {limit!r}.")
    if not limit > 0:
        raise GraphValidationError(f"{name} must be greater than 0, not {limit!r}.")
    return float(limit)
