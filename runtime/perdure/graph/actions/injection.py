"""Injection: the parameters that an action asks for by name, beside its input."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from types import NoneType, UnionType
from typing import Any, Final, ForwardRef, Union, get_args, get_origin

from perdure.data import StreamWriter
from perdure.errors import PerdureWarning
from perdure.graph.actions.annotations import NO_HINT, first_parameter, hint_of
from perdure.pregel.plan.callables import signature_of
from perdure.pregel.plan.plan import Injected, Injections

_ANNOTATED_AS: Final[dict[Injected, str | None]] = {
    "config": "RunnableConfig",
    "writer": "StreamWriter",
    "store": "BaseStore",
    "previous": None,
    "runtime": None,
    "error": "NodeError",
}
"""By the name of a parameter: the name of the type that it may be annotated with; None: any type.

Types are compared by name, so that those of other packages serve as well."""

INJECTED_NAMES: Final = ", ".join(_ANNOTATED_AS)

_OPTIONAL = re.compile(r"(?:\w+\.)*(?:Optional|Union)\[(.*)\]", re.DOTALL)


def injections_of(function: Callable[..., object]) -> Injections:
    """Return the parameters that an action, or the path of a conditional edge, asks for by name.

    The first positional parameter takes the input, whatever its name. Warns of a `config` that is
    annotated as something else, and is therefore not given.
    """
    signature = signature_of(function)
    if signature is None:
        return ()
    parameters = signature.parameters
    first = first_parameter(signature)
    return tuple(
        (name, name)
        for name in _ANNOTATED_AS
        if name in parameters
        and (first is None or name != first.name)
        and not _is_given(function, name)
        and _is_asked_for(function, parameters[name], name)
    )


def _is_given(function: Callable[..., object], name: str) -> bool:
    """Return True if a partial has filled the parameter already."""
    return isinstance(function, partial) and name in function.keywords


def _is_asked_for(function: Callable[..., object], parameter: inspect.Parameter, name: Injected) -> bool:
    if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        return False
    expected, hint = _ANNOTATED_AS[name], hint_of(function, name)
    if expected is None or hint is NO_HINT or hint is Any:
        return True
    if expected in _names(hint):
        return True
    if name == "config":
        shown = hint if isinstance(hint, str) else getattr(hint, "__name__", None) or hint
        warnings.warn(
            "The 'config' parameter should be typed as 'RunnableConfig' or 'RunnableConfig | None', "
            f"not '{shown}'. It is not given to {getattr(function, '__name__', function)!r}.",
            PerdureWarning,
            stacklevel=2,
        )
    return False


def _names(hint: object) -> Iterator[str]:
    """Yield the names of the types that an annotation allows."""
    if isinstance(hint, ForwardRef):
        hint = hint.__forward_arg__
    if isinstance(hint, str):
        inside = _OPTIONAL.fullmatch(hint.strip())
        if inside or "|" in hint:
            for part in re.split(r"[|,]", inside[1] if inside else hint):
                yield from _names(part)
        else:
            yield hint.partition("[")[0].rpartition(".")[2].strip()
    elif get_origin(hint) in (Union, UnionType):
        for part in get_args(hint):
            yield from _names(part)
    elif hint is NoneType:
        yield "None"
    elif hint == StreamWriter:
        yield "StreamWriter"
    else:
        yield getattr(get_origin(hint) or hint, "__name__", repr(hint))
