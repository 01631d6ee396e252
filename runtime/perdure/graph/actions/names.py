"""Names of nodes and conditional edges that are not given one."""

from __future__ import annotations

from functools import partial

from perdure.errors import GraphValidationError
from perdure.pregel.plan.runnables import is_runnable


def name_of(action: object, default: str | None = None) -> str:
    """Return the name of an action: the result of `get_name`, a function's name, or an object's class.

    Args:
        default: the name of lambdas, which have none of their own.

    Raises:
        GraphValidationError: it can be neither run nor called.
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
