"""Functions and other callables: their signatures, and the ways to call them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from types import MethodType
from typing import Any

from perdure.errors import GraphValidationError, NodeSignatureError
from perdure.pregel.plan.plan import Calling


def function_in(action: Callable[..., object]) -> Any:
    """Return the function or method that runs when `action` is called."""
    function: Any = action
    while isinstance(function, partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def calling_of(action: Callable[..., object]) -> Calling:
    """Return COROUTINE for an action that is async, however wrapped; THREAD for any other."""
    return Calling.COROUTINE if inspect.iscoroutinefunction(function_in(action)) else Calling.THREAD


def signature_of(action: Callable[..., object]) -> inspect.Signature | None:
    """Return the signature by which an action is called; None for a builtin without one.

    A function that wraps another has its own signature, with two exceptions. If it takes `*args` and
    `**kwargs`, it has the other one's signature. If it takes `**kwargs` only, it also has the other one's
    parameters that can be passed by name.
    """
    try:
        return _signature(action)
    except ValueError:
        return None


def _signature(action: Callable[..., object]) -> inspect.Signature:
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


def _wrapped_by(action: object) -> Any:
    """Return the `__wrapped__` of a function, method, partial or object; None if there is none."""
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
    """Follow `__wrapped__` to the innermost function; return the action itself if it wraps nothing."""
    while (wrapped := _wrapped_by(action)) is not None:
        action = wrapped
    return action


def _joined(own: inspect.Signature, inner: inspect.Signature) -> inspect.Signature:
    """Join a wrapper's own parameters with those of the wrapped function, except the first, by name.

    They get a default, because the wrapper may fill them itself.
    """
    *parameters, rest = own.parameters.values()
    _, *passed_on = inner.parameters.values() or (None,)
    parameters += [
        each.replace(kind=each.KEYWORD_ONLY, default=None)
        for each in passed_on
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY) and each.name not in own.parameters
    ]
    return own.replace(parameters=[*parameters, rest])


def check_callable(
    called: str, function: Callable[..., object], *, given: str, named: Iterable[str] = (), remedy: str
) -> None:
    """Refuse a callable that cannot take one argument and the `named` ones, and a generator.

    Args:
        called: the role of the callable, for the message.
        given: the role of the one argument, for the message.
        named: the names of the arguments that are passed by name.
        remedy: advice on how it gets more arguments, for the message.

    Raises:
        GraphValidationError: it cannot be called at all.
        NodeSignatureError: it is a generator, or its signature does not fit.
    """
    if not callable(function):
        raise GraphValidationError(f"{called} is {function!r}, which cannot be called.")
    inner = function_in(function)
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        raise NodeSignatureError(f"{called} is a generator. It must return one value, not yield several.")
    signature = signature_of(function)
    if signature is None:  # a builtin: the call itself will fail if it does not fit
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
