"""Expectations: an AssertionError is raised for one that is not met."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any

from perdure.testing.exact import exactly_equal


def expect(actual: Any, expected: Any, what: str) -> None:
    """Expect a value that is equal and of the same type, and so is everything in it."""
    if not exactly_equal(actual, expected):
        raise AssertionError(f"{what}: expected {expected!r}, got {actual!r}")


def expect_that(truth: object, what: str) -> None:
    """Expect something to be true; `what` says it in words."""
    if not truth:
        raise AssertionError(f"not so: {what}")


async def expect_error(
    call: Awaitable[object], *kinds: type[Exception], naming: Sequence[str] = ()
) -> Exception:
    """Return the error that `call` raises, of one of these kinds, with a message that names these texts."""
    wanted = " or ".join(kind.__name__ for kind in kinds)
    try:
        answer = await call
    except kinds as error:
        for text in naming:
            expect_that(text in str(error), f"the message of {type(error).__name__} names {text!r}: {error}")
        return error
    raise AssertionError(f"expected {wanted}, got the answer {answer!r}")
