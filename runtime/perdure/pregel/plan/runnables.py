"""Objects that are run by `ainvoke` or `invoke`, from whatever package they come."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from perdure.pregel.plan.callables import signature_of
from perdure.pregel.plan.plan import Calling, Injections


class Invocation(NamedTuple):
    """How to run such an object: call `call` with an input, and with its task's config if it takes one."""

    call: Callable[..., Any]
    calling: Calling
    injects: Injections


def is_runnable(thing: Any) -> bool:
    """Whether this is an object, not a function or a class, with an `ainvoke` or an `invoke`."""
    if isinstance(thing, type | partial) or inspect.isroutine(thing):
        return False
    return callable(getattr(thing, "ainvoke", None)) or callable(getattr(thing, "invoke", None))


def invocation_of(runnable: Any) -> Invocation:
    """How to run an object that `is_runnable`; `ainvoke` if it has one, else `invoke` in a thread."""
    call = getattr(runnable, "ainvoke", None)
    calling = Calling.COROUTINE
    if not callable(call):
        call, calling = runnable.invoke, Calling.THREAD
    signature = signature_of(call)
    takes_config = signature is not None and "config" in signature.parameters
    return Invocation(call, calling, (("config", "config"),) if takes_config else ())
