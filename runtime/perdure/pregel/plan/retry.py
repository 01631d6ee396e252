"""Retries: the decision to run a failed node again, and the wait before that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from perdure.data import RetryPolicy
from perdure.errors import GraphValidationError, NodeTimeoutError

_HOPELESS: Final = (
    ValueError,
    TypeError,
    ArithmeticError,
    ImportError,
    LookupError,
    NameError,
    SyntaxError,
    RuntimeError,
    ReferenceError,
    StopIteration,
    StopAsyncIteration,
    OSError,
)
"""Errors that the same call would most likely raise again."""


def default_retry_on(error: Exception) -> bool:
    """Return True for an error that may pass, such as that of a connection or of a node's timeout.

    An HTTP error passes if its status blames the server. Errors that blame the program or the machine do
    not pass. All others do. The errors of httpx and requests are recognised by name; neither package is
    imported.
    """
    if isinstance(error, ConnectionError | NodeTimeoutError):
        return True
    if _is_of(error, "httpx", "HTTPStatusError") or _is_of(error, "requests", "HTTPError"):
        return _blames_the_server(getattr(error, "response", None))
    return not isinstance(error, _HOPELESS)


def _is_of(error: Exception, package: str, name: str) -> bool:
    return any(
        kind.__name__ == name and kind.__module__.partition(".")[0] == package for kind in type(error).__mro__
    )


def _blames_the_server(response: Any) -> bool:
    return response is None or 500 <= response.status_code < 600


def check_retry_policy(policy: object) -> None:
    """Refuse a policy that cannot be followed.

    Raises:
        TypeError: it is no RetryPolicy, or its `retry_on` is of the wrong type.
        GraphValidationError: one of its numbers is out of range.
    """
    if not isinstance(policy, RetryPolicy):
        raise TypeError(f"A retry policy is a RetryPolicy, not {policy!r}.")
    if policy.retry_on is not None:
        _predicate(policy.retry_on)
    if not policy.max_attempts >= 1:
        raise GraphValidationError(
            f"RetryPolicy.max_attempts must be at least 1, not {policy.max_attempts!r}: it counts the first "
            "attempt too."
        )
    for name in ("initial_interval", "backoff_factor", "max_interval"):
        if not getattr(policy, name) >= 0:
            raise GraphValidationError(
                f"RetryPolicy.{name} must not be negative, but is {getattr(policy, name)!r}."
            )


def delay_before_retry(
    policies: Sequence[RetryPolicy], error: Exception, failures: int, draw: Callable[[], float]
) -> float | None:
    """Return the seconds to wait before the next attempt; None: there is none.

    Args:
        error: the error of the last attempt.
        failures: the number of attempts that failed so far.
        draw: a function that returns a number from 0 up to 1, for jitter.
    """
    for policy in policies:
        matches = default_retry_on if policy.retry_on is None else _predicate(policy.retry_on)
        if matches(error):
            return None if failures >= policy.max_attempts else _delay(policy, failures, draw)
    return None


def _delay(policy: RetryPolicy, failures: int, draw: Callable[[], float]) -> float:
    try:
        delay = policy.initial_interval * policy.backoff_factor ** (failures - 1)
    except OverflowError:
        delay = policy.max_interval
    return min(policy.max_interval, delay) + (draw() if policy.jitter else 0.0)


def _predicate(retry_on: Any) -> Callable[[Exception], bool]:
    if isinstance(retry_on, type):
        kinds: tuple[Any, ...] = (retry_on,)
    elif isinstance(retry_on, Sequence):
        kinds = tuple(retry_on)
    elif callable(retry_on):
        return retry_on  # type: ignore[no-any-return]  # what its user says of errors
    else:
        raise _says_nothing(retry_on)
    for kind in kinds:
        if not isinstance(kind, type) or not issubclass(kind, Exception):
            raise _says_nothing(retry_on)
    return lambda error: isinstance(error, kinds)


def _says_nothing(retry_on: object) -> TypeError:
    return TypeError(
        "RetryPolicy.retry_on must be a class of exceptions, a sequence of them, or a function that is given "
        f"the exception, not {retry_on!r}."
    )
