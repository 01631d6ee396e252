"""Functions, and whatever else is called: how, and with what."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from types import MethodType
from typing import Any

from perdure.errors import GraphValidationError, NodeSignatureError
from perdure.pregel.plan.plan import Calling


def function_in(action: Callable[..., Any]) -> Any:
    """The function or method that runs when `action` is called."""
    function: Any = action
    while isinstance(function, partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def calling_of(action: Callable[..., Any]) -> Calling:
    """Whether an action is a coroutine function, in whatever wrapping, or must run in a thread."""
    return Calling.COROUTINE if inspect.iscoroutinefunction(function_in(action)) else Calling.THREAD


def signature_of(action: Callable[..., Any]) -> inspect.Signature | None:
    """With what an action can be called; None for a builtin that does not tell.

    A function that wraps another is called as it says itself. Only what it takes as `**kwargs` does it pass
    on by name, and only as `*args` and `**kwargs` everything.
    """
    try:
        return _signature(action)
    except ValueError:
        return None


def _signature(action: Callable[..., Any]) -> inspect.Signature:
    wrapped = _wrapped_by(action)
    if wrapped is None:
        return inspect.signature(action, follow_wrapped=False)
    try:
        own = inspect.signature(action, follow_wrapped=False)
    except ValueError:  # made by functools.cache, which passes everything on
        return _signature(wrapped)
    kinds = {parameter.kind for parameter in own.parameters.values()}
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        return own
    inner = _signature(wrapped)
    return inner if inspect.Parameter.VAR_POSITIONAL in kinds else _joined(own, inner)


def _wrapped_by(action: Any) -> Any:
    """What a decorator's function, or object, says that it wraps; None if it says nothing."""
    if isinstance(action, partial):
        wrapped = _wrapped_by(action.func)
        return None if wrapped is None else partial(wrapped, *action.args, **action.keywords)
    if isinstance(action, MethodType):
        wrapped = _wrapped_by(action.__func__)
        return None if wrapped is None else MethodType(wrapped, action.__self__)
    wrapped = getattr(action, "__wrapped__", None)
    if wrapped is None and not inspect.isroutine(action):
        wrapped = getattr(type(action).__call__, "__wrapped__", None)
        return None if wrapped is None else MethodType(wrapped, action)
    return wrapped


def innermost(action: Any) -> Any:
    """What an action wraps, and so on; itself, if it wraps nothing."""
    while (wrapped := _wrapped_by(action)) is not None:
        action = wrapped
    return action


def _joined(own: inspect.Signature, inner: inspect.Signature) -> inspect.Signature:
    """Its own parameters, and by name those after the first of what it wraps, which it may fill itself."""
    *parameters, rest = own.parameters.values()
    _, *passed_on = inner.parameters.values() or (None,)
    parameters += [
        each.replace(kind=each.KEYWORD_ONLY, default=None)
        for each in passed_on
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY) and each.name not in own.parameters
    ]
    return own.replace(parameters=[*parameters, rest])


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
