"""What a node's action or a conditional edge's path is named, and what it must be."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, get_origin

from perdure.config import RunnableConfig
from perdure.data import NodeError
from perdure.errors import GraphValidationError, NodeSignatureError
from perdure.graph.injection import INJECTED_NAMES
from perdure.graph.schema.hints import NO_HINT, first_parameter, hint_of
from perdure.pregel.plan.callables import check_callable, signature_of
from perdure.pregel.plan.plan import Injected
from perdure.pregel.plan.runnables import is_runnable
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


def check_action(
    name: str, action: Callable[..., Any], injects: tuple[tuple[str, Injected], ...] = ()
) -> None:
    """Refuse an action that asks for more than its input and what `injects` gives it, or that yields."""
    _check(f"Node {name!r}", action, injects)


def check_path(source: str, path: Callable[..., Any], injects: tuple[tuple[str, Injected], ...] = ()) -> None:
    """Refuse a path that asks for more than the state and what `injects` gives it, or that yields."""
    _check(f"The conditional edge of {source!r}", path, injects)


def _check(called: str, function: Callable[..., Any], injects: tuple[tuple[str, Injected], ...]) -> None:
    check_callable(
        called,
        function,
        given="the state",
        named=(parameter for parameter, _ in injects),
        remedy=f"Beside the state it can ask, by name, for: {INJECTED_NAMES}.",
    )
    _check_first(called, function)


_BESIDE_THE_STATE: Final = (RunnableConfig, Runtime, NodeError)


def _check_first(called: str, function: Callable[..., Any]) -> None:
    """Refuse a function whose state would be made into what it can only be given beside the state."""
    first = first_parameter(signature_of(function))
    hint = NO_HINT if first is None else hint_of(function, first.name)
    typ = get_origin(hint) or hint
    if first is not None and typ in _BESIDE_THE_STATE:
        raise NodeSignatureError(
            f"{called} takes the state as its first parameter, but {first.name!r} is annotated as a "
            f"{typ.__name__}. Put a parameter for the state before it."
        )
