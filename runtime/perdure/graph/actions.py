"""What can be a node's action or a conditional edge's path, and how it is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from perdure.errors import GraphValidationError, NodeSignatureError
from perdure.pregel.plan import Calling


def name_of(function: Callable[..., Any], default: str | None = None) -> str:
    """A function's own name, or that of the class of a callable object.

    With a `default`, lambdas are named so, for want of a name of their own.
    """
    if not callable(function):
        raise GraphValidationError(f"Expected a function or another callable, got {function!r}.")
    if isinstance(function, partial):
        return name_of(function.func, default)
    name = getattr(function, "__name__", None) or type(function).__name__
    return default if default is not None and name == "<lambda>" else str(name)


def calling_of(action: Callable[..., Any]) -> Calling:
    """Whether an action is a coroutine function, in whatever wrapping, or must run in a thread."""
    return Calling.COROUTINE if inspect.iscoroutinefunction(unwrapped(action)) else Calling.THREAD


def unwrapped(action: Callable[..., Any]) -> Any:
    """The function or method that runs when `action` is called."""
    function: Any = action
    while isinstance(function, partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def check_action(name: str, action: Callable[..., Any]) -> None:
    """Refuse an action that cannot be called with the state alone, or that would not return once."""
    _check(f"Node {name!r}", action)


def check_path(source: str, path: Callable[..., Any]) -> None:
    """Refuse a path that cannot be called with the state alone, or that would not return once."""
    _check(f"The conditional edge of {source!r}", path)


def _check(what: str, function: Callable[..., Any]) -> None:
    if not callable(function):
        raise GraphValidationError(f"{what} is {function!r}, which cannot be called.")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise NodeSignatureError(f"{what} is a generator; it must return one value, not yield several.")
    try:
        signature = inspect.signature(function)
    except ValueError:  # a builtin that does not tell; calling it will
        return
    try:
        signature.bind(object())
    except TypeError as error:
        raise NodeSignatureError(
            f"{what} has the signature {signature}, but is called with one argument, the state: {error}."
        ) from None
