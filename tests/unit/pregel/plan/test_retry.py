"""Errors that are worth another attempt, and the delay before it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from perdure.data import RetryPolicy
from perdure.errors import GraphValidationError, InvalidUpdateError, NodeTimeoutError
from perdure.pregel.plan.retry import check_retry_policy, default_retry_on, delay_before_retry


def http_error(package: str, name: str, status: int | None) -> Exception:
    """Make an error like those of an HTTP package, with a response of this status."""
    base = OSError if package == "requests" else Exception
    kind = type(name, (base,), {"__module__": f"{package}.exceptions"})
    error: Any = kind("answer")
    error.response = None if status is None else SimpleNamespace(status_code=status)
    return cast("Exception", error)


class UnknownError(Exception):
    """An error of no known kind."""


class HTTPError(Exception):
    """An error with the name of one of requests, but of another package."""


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError(),
        ConnectionResetError(),
        UnknownError(),
        HTTPError(),
        NodeTimeoutError("n", "run", elapsed=1.0, run_timeout=1.0),
        http_error("httpx", "HTTPStatusError", 500),
        http_error("httpx", "HTTPStatusError", 599),
        http_error("requests", "HTTPError", 503),
        http_error("requests", "HTTPError", None),
    ],
    ids=repr,
)
def test_what_may_pass_is_tried_again_by_default(error: Exception) -> None:
    assert default_retry_on(error)


@pytest.mark.parametrize(
    "error",
    [
        *(ValueError(), TypeError(), ZeroDivisionError(), ImportError(), KeyError(), NameError()),
        *(SyntaxError(), RuntimeError(), ReferenceError(), StopIteration(), StopAsyncIteration()),
        *(OSError(), TimeoutError(), FileNotFoundError(), InvalidUpdateError()),
        http_error("httpx", "HTTPStatusError", 404),
        http_error("httpx", "HTTPStatusError", 600),
        http_error("requests", "HTTPError", 429),
    ],
    ids=repr,
)
def test_what_the_same_call_would_raise_again_is_not(error: Exception) -> None:
    assert not default_retry_on(error)


def test_a_subclass_of_a_packages_error_is_known_too() -> None:
    kind: Any = type("Mine", (type(http_error("httpx", "HTTPStatusError", 404)),), {"__module__": "mine"})
    error = kind("answer")
    error.response = SimpleNamespace(status_code=404)

    assert not default_retry_on(error)


def delay(error: Exception, failures: int, *policies: RetryPolicy, drawn: float = 0.25) -> float | None:
    return delay_before_retry(policies, error, failures, lambda: drawn)


@pytest.mark.parametrize(
    ("retry_on", "error", "matches"),
    [
        (KeyError, KeyError(), True),
        (LookupError, KeyError(), True),
        (KeyError, ValueError(), False),
        ([KeyError, ValueError], ValueError(), True),
        ((KeyError, ValueError), OSError(), False),
        ((), KeyError(), False),
        (lambda error: "yes" in str(error), ValueError("yes"), True),
        (lambda error: "yes" in str(error), ConnectionError("no"), False),
        (None, ConnectionError(), True),
        (None, ValueError(), False),
    ],
)
def test_what_retry_on_says(retry_on: Any, error: Exception, matches: bool) -> None:
    policy = RetryPolicy(retry_on=retry_on, jitter=False)
    check_retry_policy(policy)

    assert (delay(error, 1, policy) is not None) is matches


def test_a_delay_grows_up_to_its_limit() -> None:
    policy = RetryPolicy(
        initial_interval=1.0, backoff_factor=3.0, max_interval=10.0, max_attempts=9, jitter=False
    )

    assert [delay(ConnectionError(), n, policy) for n in (1, 2, 3, 4)] == [1.0, 3.0, 9.0, 10.0]


def test_jitter_comes_on_top_of_the_limit() -> None:
    policy = RetryPolicy(initial_interval=20.0, max_interval=10.0)

    assert delay(ConnectionError(), 1, policy) == 10.25
    assert delay(ConnectionError(), 1, policy, drawn=0.75) == 10.75


def test_the_defaults() -> None:
    assert [delay(ConnectionError(), n, RetryPolicy()) for n in (1, 2, 3)] == [0.75, 1.25, None]


def test_a_delay_after_very_many_attempts_is_the_limit_too() -> None:
    policy = RetryPolicy(max_attempts=10_000, jitter=False)

    assert delay(ConnectionError(), 5_000, policy) == 128.0


def test_the_first_policy_that_matches_decides_by_the_number_of_all_failures() -> None:
    first = RetryPolicy(retry_on=KeyError, max_attempts=2, jitter=False)
    second = RetryPolicy(retry_on=LookupError, max_attempts=4, initial_interval=5.0, jitter=False)

    assert delay(KeyError(), 1, first, second) == 0.5
    assert delay(IndexError(), 1, first, second) == 5.0
    assert delay(KeyError(), 2, first, second) is None
    assert delay(IndexError(), 3, first, second) == 20.0
    assert delay(IndexError(), 4, first, second) is None


def test_without_a_policy_nothing_is_tried_again() -> None:
    assert delay(ConnectionError(), 1) is None


@pytest.mark.parametrize(
    "retry_on", [3, "KeyError", [KeyError, "ValueError"], int, KeyboardInterrupt, [Exception()]]
)
def test_a_retry_on_that_says_nothing_of_errors_is_refused(retry_on: Any) -> None:
    policy = RetryPolicy(retry_on=retry_on)
    refusals: list[Callable[[], object]] = [
        lambda: check_retry_policy(policy),
        lambda: delay(ValueError(), 1, policy),
    ]
    for refuse in refusals:
        with pytest.raises(TypeError) as refused:
            refuse()
        assert str(refused.value) == (
            "RetryPolicy.retry_on must be a class of exceptions, a sequence of them, or a function that is "
            f"given the exception, not {retry_on!r}."
        )


@pytest.mark.parametrize("policy", [3, None, {"max_attempts": 2}, RetryPolicy])
def test_what_is_no_policy_is_refused(policy: Any) -> None:
    with pytest.raises(TypeError, match="A retry policy is a RetryPolicy, not "):
        check_retry_policy(policy)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (RetryPolicy(max_attempts=0), "max_attempts must be at least 1, not 0"),
        (RetryPolicy(initial_interval=-1), "initial_interval must not be negative, but is -1"),
        (RetryPolicy(backoff_factor=-0.5), "backoff_factor must not be negative, but is -0.5"),
        (RetryPolicy(max_interval=float("nan")), "max_interval must not be negative, but is nan"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(policy: RetryPolicy, message: str) -> None:
    with pytest.raises(GraphValidationError, match=message):
        check_retry_policy(policy)
