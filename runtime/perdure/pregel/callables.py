"""Functions, and whatever else is called: how, and with what."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from perdure.errors import GraphValidationError, NodeSignatureError
from perdure.pregel.plan import Calling


def function_in(action: Callable[..., Any]) -> Any:
    """The function or method that runs when `action` is called."""
    function: Any = action
    while isinstance(function, partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def calling_of(action: Callable[..., Any]) -> Calling:
    """Whether an action is a coroutine function, in whatever wrapping, or must run in a thread."""
    return Calling.COROUTINE if inspect.iscoroutinefunction(function_in(action)) else Calling.THREAD


def signature_of(function: Callable[..., Any]) -> inspect.Signature | None:
    """The signature; None for a builtin that does not tell."""
    try:
        return inspect.signature(function)
    except ValueError:
        return None


def check_callable(
    called: str, function: Callable[..., Any], *, given: str, named: Iterable[str] = (), remedy: str
) -> None:
    """Refuse what cannot be called with one argument and those that are `named`, and what yields.

    Args:
        called: what it is, for the message.
        given: what the one argument is.
        remedy: how it gets more than that.
    """
    if not callable(function):
        raise GraphValidationError(f"{called} is {function!r}, which cannot be called.")
    inner = function_in(function)
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise NodeSignatureError(f"{called} is a generator; it must return one value, not yield several.")
    signature = signature_of(function)
    if signature is None:  # calling it will tell
        return
    names = list(named)
    try:
        signature.bind(object(), **dict.fromkeys(names))
    except TypeError as error:
        beside = "".join(f", and {name!r}" for name in names)
        raise NodeSignatureError(
            f"{called} has the signature {signature}, but is called with one argument, {given}{beside}: "
            f"{error}. {remedy}"
        ) from None
