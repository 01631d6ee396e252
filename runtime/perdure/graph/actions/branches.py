"""Conditional edges, as they are made of paths: functions, or objects with `ainvoke` or `invoke`."""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin

from perdure.errors import GraphValidationError
from perdure.graph.actions.action_types import Path
from perdure.graph.actions.annotations import hint_of, input_schema_of
from perdure.graph.actions.injection import injections_of
from perdure.graph.actions.names import name_of
from perdure.graph.actions.signatures import check_path
from perdure.graph.description import StateBranch
from perdure.pregel.plan.plan import Injections
from perdure.pregel.plan.runnables import invocation_of, is_runnable

_LISTS = (list, tuple, Sequence)


def branch_of(
    source: str, path: Path, path_map: Mapping[Hashable, str] | Sequence[str] | None
) -> StateBranch:
    """Describe the conditional edge that leads from `source` where `path` says."""
    function, injects = _called(path)
    check_path(source, function, injects)
    returned = hint_of(function, "return")
    return StateBranch(
        name=_name(path),
        path=function,
        ends=declared_ends(returned) if path_map is None else _ends(source, path_map),
        input_schema=input_schema_of(function),
        several=returns_several(returned),
        injects=injects,
    )


def _called(path: Any) -> tuple[Callable[..., object], Injections]:
    """Return the function to call, which is the path or its method, with the parameters that it asks for."""
    if is_runnable(path):
        call, _, injects = invocation_of(path)
        return call, injects
    return path, injections_of(path) if callable(path) else ()


def _name(path: object) -> str:
    if not is_runnable(path) or callable(getattr(path, "get_name", None)):
        return name_of(path, default="condition")
    named = getattr(path, "name", None)
    return named if isinstance(named, str) and named else name_of(path)


def _ends(source: str, path_map: Mapping[Hashable, str] | Sequence[str]) -> dict[Hashable, str]:
    if isinstance(path_map, Mapping):
        return dict(path_map)
    if isinstance(path_map, str):
        raise GraphValidationError(
            f"The path_map of a conditional edge of {source!r} is a mapping or a list of node names; "
            f"got {path_map!r}. Write [{path_map!r}]."
        )
    return {target: target for target in path_map}


def declared_ends(returned: object) -> dict[Hashable, str] | None:
    """Return the destinations that a return annotation declares; None if it leaves them open.

    `Literal[...]` declares destinations, and so does an `Optional`, a union or a list of Literals. A union
    with anything else, a Send for one, leaves them open.
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


def returns_several(returned: object) -> bool:
    """Return True if a return annotation says that a list is, or may be, returned."""
    if get_origin(returned) in (Union, types.UnionType):
        return any(map(returns_several, get_args(returned)))
    return returned in _LISTS or get_origin(returned) in _LISTS
