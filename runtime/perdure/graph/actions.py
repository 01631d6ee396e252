"""What a node's action or a conditional edge's path is called, and how."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, Final, get_origin

from perdure.config import RunnableConfig
from perdure.data import NodeError
from perdure.errors import GraphValidationError, NodeSignatureError
from perdure.graph.hints import NO_HINT, first_parameter, hint_of, signature_of, unwrapped
from perdure.graph.injection import INJECTED_NAMES
from perdure.pregel.plan import Calling, Injected
from perdure.pregel.runnables import is_runnable
from perdure.runtime import Runtime


def name_of(action: Any, default: str | None = None) -> str:
    """What `get_name` of a runnable says; a function's own name, or that of the class of an object.

    With a `default`, lambdas are named so, for want of a name of their own.
    """
    if is_runnable(action):
        get_name = getattr(action, "get_name", None)
        return str(get_name()) if callable(get_name) else type(action).__name__
    if not callable(action):
        raise GraphValidationError(f"Expected a function or another callable, got {action!r}.")
    if isinstance(action, partial):
        return name_of(action.func, default)
    name = getattr(action, "__name__", None) or type(action).__name__
    return default if default is not None and name == "<lambda>" else str(name)


def calling_of(action: Callable[..., Any]) -> Calling:
    """Whether an action is a coroutine function, in whatever wrapping, or must run in a thread."""
    return Calling.COROUTINE if inspect.iscoroutinefunction(unwrapped(action)) else Calling.THREAD


def check_action(
    name: str, action: Callable[..., Any], injects: tuple[tuple[str, Injected], ...] = ()
) -> None:
    """Refuse an action that asks for more than its input and what `injects` gives it, or that yields."""
    _check(f"Node {name!r}", action, injects)


def check_path(source: str, path: Callable[..., Any], injects: tuple[tuple[str, Injected], ...] = ()) -> None:
    """Refuse a path that asks for more than the state and what `injects` gives it, or that yields."""
    _check(f"The conditional edge of {source!r}", path, injects)


def _check(what: str, function: Callable[..., Any], injects: tuple[tuple[str, Injected], ...]) -> None:
    if not callable(function):
        raise GraphValidationError(f"{what} is {function!r}, which cannot be called.")
    called = unwrapped(function)
    if inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        raise NodeSignatureError(f"{what} is a generator; it must return one value, not yield several.")
    try:
        signature = signature_of(function)
    except ValueError:  # a builtin that does not tell; calling it will
        return
    _check_first(what, function, signature)
    try:
        signature.bind(object(), **dict.fromkeys(parameter for parameter, _ in injects))
    except TypeError as error:
        beside = "".join(f", and {parameter!r}" for parameter, _ in injects)
        raise NodeSignatureError(
            f"{what} has the signature {signature}, but is called with one argument, the state{beside}: "
            f"{error}. Beside the state it can ask, by name, for: {INJECTED_NAMES}."
        ) from None


_BESIDE_THE_STATE: Final = (RunnableConfig, Runtime, NodeError)


def _check_first(what: str, function: Callable[..., Any], signature: inspect.Signature) -> None:
    """Refuse a function whose state would be made into what it can only be given beside the state."""
    first = first_parameter(signature)
    hint = NO_HINT if first is None else hint_of(function, first.name)
    typ = get_origin(hint) or hint
    if first is not None and typ in _BESIDE_THE_STATE:
        raise NodeSignatureError(
            f"{what} takes the state as its first parameter, but {first.name!r} is annotated as a "
            f"{typ.__name__}. Put a parameter for the state before it."
        )
