"""Arguments of StateGraph's methods, in one form: older names, destinations, starts of edges."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, Final, TypedDict

from perdure.errors import GraphValidationError, PerdureDeprecationWarning
from perdure.pregel.plan.names import nearest


class OlderSchemas(TypedDict, total=False):
    """Parameters of StateGraph under older names."""

    config_schema: object
    input: object
    output: object


_OLDER_SCHEMAS: Final = {
    "config_schema": "context_schema",
    "input": "input_schema",
    "output": "output_schema",
}


def renamed_schemas(by_old: Mapping[str, Any], by_new: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the schemas that StateGraph was given by older names of its parameters into the others.

    Raises:
        TypeError: StateGraph never had a parameter of this name.
        GraphValidationError: a schema was given by both of its names.
    """
    given = dict(by_new)
    for old, value in by_old.items():
        if old not in _OLDER_SCHEMAS:
            raise TypeError(
                f"StateGraph() got an unexpected keyword argument {old!r}." + nearest(old, by_new)
            )
        new = _OLDER_SCHEMAS[old]
        given[new] = renamed(old, value, new, by_new[new], stacklevel=4)
    return given


def renamed(old: str, by_old: Any, new: str, by_new: Any, *, stacklevel: int = 3) -> Any:
    """Return the argument that was given by either name of a parameter; warn if it was the older one.

    Raises GraphValidationError if there are two.
    """
    if by_old is None:
        return by_new
    if by_new is not None:
        raise GraphValidationError(f"`{old}` is an older name of `{new}`: give one of them.")
    warnings.warn(f"`{old}` is deprecated: write `{new}`.", PerdureDeprecationWarning, stacklevel=stacklevel)
    return by_old


def labels_of(destinations: Mapping[str, str] | Sequence[str] | None) -> dict[str, str | None] | None:
    """Return destinations by name, each with its label or None; None if no destinations are given."""
    if destinations is None:
        return None
    if isinstance(destinations, str):
        raise GraphValidationError(
            f"destinations is the text {destinations!r}; expected a tuple of names, or a dict of labels by "
            f"name. Write ({destinations!r},)."
        )
    return dict(destinations) if isinstance(destinations, Mapping) else dict.fromkeys(destinations)


def starts_of(start: str | Iterable[str], end: str) -> str | tuple[str, ...]:
    """Return the node that an edge starts from, or a tuple of those that a join waits for.

    A set is sorted: its own order would be another one in the next process.

    Raises GraphValidationError if a join is to wait for something that is not a name.
    """
    if isinstance(start, str) or not isinstance(start, Iterable):
        return start
    starts = tuple(start)
    for name in starts:
        if not isinstance(name, str):
            raise GraphValidationError(
                f"An edge starts at a node's name, or at a list of names, but the edge to {end!r} starts at "
                f"{name!r}."
            )
    return tuple(sorted(starts)) if isinstance(start, Set) else starts
