"""What add_node and add_edge are told: names, destinations, starts, and older names for the same."""

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
    """What StateGraph was given by older names of its parameters and by those of today, by the latter."""
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
    """What was given by either name of a parameter, with a warning if it was the older one."""
    if by_old is None:
        return by_new
    if by_new is not None:
        raise GraphValidationError(f"`{old}` is an older name of `{new}`: give one of them.")
    warnings.warn(f"`{old}` is deprecated: write `{new}`.", PerdureDeprecationWarning, stacklevel=stacklevel)
    return by_old


def labels_of(destinations: Mapping[str, str] | Sequence[str] | None) -> dict[str, str | None] | None:
    """Destinations by name, with the labels that were given; None if none were."""
    if destinations is None:
        return None
    if isinstance(destinations, str):
        raise GraphValidationError(
            f"destinations is the text {destinations!r}; expected a tuple of names, or a dict of labels by "
            "name."
        )
    return dict(destinations) if isinstance(destinations, Mapping) else dict.fromkeys(destinations)


def starts_of(start: str | Iterable[str], end: str) -> str | tuple[str, ...]:
    """The node that an edge starts from, or those that a join waits for.

    A set has no order that the next process would share: it is sorted.

    Raises GraphValidationError for what is no name among several.
    """
    if isinstance(start, str) or not isinstance(start, Iterable):
        return start
    starts = tuple(start)
    for name in starts:
        if not isinstance(name, str):
            raise GraphValidationError(
                f"An edge starts at a node's name, or at a list of names; that to {end!r} has {name!r} among "
                "them."
            )
    return tuple(sorted(starts)) if isinstance(start, Set) else starts
