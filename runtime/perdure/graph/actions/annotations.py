"""Annotations of an action: the schema of its input, and the destinations that it declares."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from perdure.data import Command
from perdure.graph.schema.kinds import is_typed_dict
from perdure.pregel.plan.callables import function_in, innermost, signature_of

NO_HINT: Final = inspect.Parameter.empty


def hint_of(action: Callable[..., object], name: str) -> Any:
    """Return the annotation of a parameter, or of "return"; NO_HINT if there is none.

    Annotations are resolved one by one, so that one which cannot be resolved does not hide the others. It
    is returned as it was written: its names may have been imported for type checkers only.
    """
    function = function_in(innermost(action))
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


def first_parameter(signature: inspect.Signature | None) -> inspect.Parameter | None:
    """Return the parameter that takes the input; None if there is none, or if the signature is unknown."""
    parameters = () if signature is None else signature.parameters.values()
    return next((p for p in parameters if p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD)), None)


def input_schema_of(action: Callable[..., object]) -> Any:
    """Return the schema that the first parameter is annotated with; None if it is not.

    Of a function that wraps another, the other one's annotations count.
    """
    first = first_parameter(signature_of(innermost(action)))
    if first is None or first.kind is first.VAR_POSITIONAL:
        return None
    hint = hint_of(action, first.name)
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return hint if _is_schema(get_origin(hint) or hint) else None


def _is_schema(hint: object) -> bool:
    if not isinstance(hint, type):
        return False
    return (
        is_typed_dict(hint) or is_dataclass(hint) or (issubclass(hint, BaseModel) and hint is not BaseModel)
    )


def destinations_of(action: Callable[..., object]) -> tuple[str, ...] | None:
    """Return the nodes that `Command[Literal[...]]` in the return annotation names; None if it names none."""
    return tuple(dict.fromkeys(_commanded(hint_of(action, "return")))) or None


def _commanded(hint: object) -> Iterator[str]:
    if get_origin(hint) is Literal:
        return
    for part in get_args(hint):
        if get_origin(hint) is Command and get_origin(part) is Literal:
            yield from get_args(part)
        else:
            yield from _commanded(part)
