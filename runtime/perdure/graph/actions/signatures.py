"""Signatures of actions and paths: they are called with the state and what they ask for by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, get_origin

from perdure.config import RunnableConfig
from perdure.data import NodeError
from perdure.errors import NodeSignatureError
from perdure.graph.actions.annotations import NO_HINT, first_parameter, hint_of
from perdure.graph.actions.injection import INJECTED_NAMES
from perdure.pregel.plan.callables import check_callable, signature_of
from perdure.pregel.plan.plan import Injections
from perdure.runtime import Runtime


def check_action(name: str, action: Callable[..., object], injects: Injections = ()) -> None:
    """Refuse an action that asks for more than its input and what `injects` gives it, or that yields."""
    _check(f"Node {name!r}", action, injects)


def check_path(source: str, path: Callable[..., object], injects: Injections = ()) -> None:
    """Refuse a path that asks for more than the state and what `injects` gives it, or that yields."""
    _check(f"The conditional edge of {source!r}", path, injects)


def _check(called: str, function: Callable[..., object], injects: Injections) -> None:
    check_callable(
        called,
        function,
        given="the state",
        named=(parameter for parameter, _ in injects),
        remedy=f"Beside the state it can ask, by name, for: {INJECTED_NAMES}.",
    )
    _check_first(called, function)


_BESIDE_THE_STATE: Final = (RunnableConfig, Runtime, NodeError)


def _check_first(called: str, function: Callable[..., object]) -> None:
    """Refuse a function whose first parameter is annotated as one that comes after the state."""
    first = first_parameter(signature_of(function))
    hint = NO_HINT if first is None else hint_of(function, first.name)
    typ = get_origin(hint) or hint
    if first is not None and typ in _BESIDE_THE_STATE:
        raise NodeSignatureError(
            f"{called} takes the state as its first parameter, but {first.name!r} is annotated as a "
            f"{typ.__name__}. Put a parameter for the state before it."
        )
