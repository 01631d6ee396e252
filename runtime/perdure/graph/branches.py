"""From a path to a conditional edge: what can be one, what it is called, and what its annotations say."""

from __future__ import annotations

import dataclasses
import inspect
import types
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, Protocol, Union, get_args, get_origin, get_type_hints, is_typeddict

import typing_extensions
from pydantic import BaseModel

from perdure.errors import GraphValidationError
from perdure.graph.actions import check_path, name_of, unwrapped
from perdure.graph.description import StateBranch

_LISTS = (list, tuple, Sequence)


class Invokes(Protocol):
    """An object that is run by a method; `Path` in its other forms is called."""

    def invoke(self, given: Any, /) -> Any:
        """Say where to go."""
        ...


class InvokesAsync(Protocol):
    """The same, where the method is async."""

    def ainvoke(self, given: Any, /) -> Awaitable[Any]:
        """Say where to go."""
        ...


Path = Callable[..., Any] | Invokes | InvokesAsync
"""What decides where a conditional edge leads."""


def branch_of(
    source: str, path: Path, path_map: Mapping[Hashable, str] | Sequence[str] | None
) -> StateBranch:
    """The conditional edge that `path` makes."""
    function = _function(path)
    check_path(source, function)
    hints = _hints(function)
    returned = hints.get("return")
    return StateBranch(
        name=_name(path),
        path=function,
        ends=declared_ends(returned) if path_map is None else _ends(source, path_map),
        input_schema=_input_schema(function, hints),
        several=returns_several(returned),
    )


def _function(path: Any) -> Any:
    """What is called: the path itself, or the method by which an object that is no function is run."""
    if isinstance(path, type | partial) or inspect.isroutine(path):
        return path
    if callable(getattr(path, "ainvoke", None)):
        return path.ainvoke
    return path.invoke if not callable(path) and callable(getattr(path, "invoke", None)) else path


def _name(path: Any) -> str:
    if _function(path) is path:
        return name_of(path, default="condition")
    named = path.get_name() if callable(getattr(path, "get_name", None)) else getattr(path, "name", None)
    return named if isinstance(named, str) and named else type(path).__name__


def _ends(source: str, path_map: Mapping[Hashable, str] | Sequence[str]) -> dict[Hashable, str]:
    if isinstance(path_map, Mapping):
        return dict(path_map)
    if isinstance(path_map, str):
        raise GraphValidationError(
            f"The path_map of a conditional edge of {source!r} is a mapping or a list of node names; "
            f"got {path_map!r}. Write [{path_map!r}]."
        )
    return {target: target for target in path_map}


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(unwrapped(function))
    except (NameError, TypeError):  # annotations that do not resolve declare nothing
        return {}


def declared_ends(returned: Any) -> dict[Hashable, str] | None:
    """The destinations that a return annotation declares; None if it leaves them open.

    `Literal[...]` declares, and so do `Optional` and unions of Literals and a list of them. With anything
    else beside it, a Send for one, the annotation does not say all, and so declares nothing.
    """
    origin = get_origin(returned)
    if origin is Literal:
        return {target: target for target in get_args(returned)}
    if origin in (Union, types.UnionType):
        parts = [part for part in get_args(returned) if part is not types.NoneType]
    elif origin in _LISTS:
        parts = [part for part in get_args(returned) if part is not Ellipsis]
    else:
        return None
    ends: dict[Hashable, str] = {}
    for part in parts:
        declared = declared_ends(part)
        if declared is None:
            return None
        ends.update(declared)
    return ends


def returns_several(returned: Any) -> bool:
    """Whether a return annotation says that a list is, or may be, returned."""
    if get_origin(returned) in (Union, types.UnionType):
        return any(map(returns_several, get_args(returned)))
    return returned in _LISTS or get_origin(returned) in _LISTS


def _input_schema(function: Callable[..., Any], hints: Mapping[str, Any]) -> Any:
    """The class of the path's first parameter, if it is one that a state can be made as."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # a builtin that does not tell
        return None
    positional = (p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))
    first = next(positional, None)
    hint = None if first is None else hints.get(first.name)
    return hint if _is_schema(get_origin(hint) or hint) else None


def _is_schema(hint: Any) -> bool:
    if is_typeddict(hint) or typing_extensions.is_typeddict(hint):
        return True
    return isinstance(hint, type) and (dataclasses.is_dataclass(hint) or issubclass(hint, BaseModel))
