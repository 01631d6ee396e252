"""What the annotations of an action declare: the form of its input, and where it may go."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from functools import partial
from types import MethodType
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints, is_typeddict

import typing_extensions
from pydantic import BaseModel

from perdure.data import Command

NO_HINT: Final = inspect.Parameter.empty


def unwrapped(action: Callable[..., Any]) -> Any:
    """The function or method that runs when `action` is called."""
    function: Any = action
    while isinstance(function, partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def hint_of(action: Callable[..., Any], name: str) -> Any:
    """The annotation of a parameter, or of "return"; NO_HINT if there is none.

    Each is looked up by itself: that another one cannot be resolved does not matter. One that cannot
    be resolved, as when its names are imported for type checkers only, is given as it was written.
    """
    function = unwrapped(_innermost(action))
    try:
        hint = inspect.get_annotations(function).get(name, NO_HINT)
    except (NameError, TypeError):  # evaluated on demand and not there; or no function of Python's
        return NO_HINT
    if hint is NO_HINT:
        return NO_HINT

    def probe() -> None: ...

    probe.__annotations__ = {name: hint}
    try:
        known = getattr(function, "__globals__", {})
        return get_type_hints(probe, globalns=known, include_extras=True)[name]
    except (NameError, TypeError, AttributeError, SyntaxError):
        return hint


def signature_of(action: Callable[..., Any]) -> inspect.Signature:
    """With what an action can be called. Raises ValueError for a builtin that does not tell.

    A function that wraps another is called as it says itself. Only what it takes as `**kwargs` does it pass
    on by name, and only as `*args` and `**kwargs` everything.
    """
    wrapped = _wrapped_by(action)
    if wrapped is None:
        return inspect.signature(action, follow_wrapped=False)
    try:
        own = inspect.signature(action, follow_wrapped=False)
    except ValueError:  # made by functools.cache, which passes everything on
        return signature_of(wrapped)
    kinds = {parameter.kind for parameter in own.parameters.values()}
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        return own
    inner = signature_of(wrapped)
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


def _innermost(action: Any) -> Any:
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


def first_parameter(signature: inspect.Signature) -> inspect.Parameter | None:
    """The parameter that takes the input; None if there is none."""
    parameters = signature.parameters.values()
    return next((p for p in parameters if p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD)), None)


def input_schema_of(action: Callable[..., Any]) -> Any:
    """The state schema that the first parameter is annotated with; None if it is not.

    Of a function that wraps another it is the other's: with the name, that gives it its annotations.
    """
    try:
        first = first_parameter(inspect.signature(_innermost(action), follow_wrapped=False))
    except ValueError:  # a builtin that does not tell
        return None
    if first is None or first.kind is first.VAR_POSITIONAL:
        return None
    hint = hint_of(action, first.name)
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return hint if _is_schema(get_origin(hint) or hint) else None


def _is_schema(hint: Any) -> bool:
    if not isinstance(hint, type):
        return False
    typed_dict = is_typeddict(hint) or typing_extensions.is_typeddict(hint)
    return typed_dict or is_dataclass(hint) or (issubclass(hint, BaseModel) and hint is not BaseModel)


def destinations_of(action: Callable[..., Any]) -> tuple[str, ...] | None:
    """The nodes in `Command[Literal[...]]`, wherever in the annotated return; None if it is not there."""
    return tuple(dict.fromkeys(_commanded(hint_of(action, "return")))) or None


def _commanded(hint: Any) -> Iterator[str]:
    if get_origin(hint) is Literal:
        return
    for part in get_args(hint):
        if get_origin(hint) is Command and get_origin(part) is Literal:
            yield from get_args(part)
        else:
            yield from _commanded(part)
