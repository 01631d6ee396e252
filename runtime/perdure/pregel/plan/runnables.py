"""Runnables: objects of any package that are run by `ainvoke` or `invoke`."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

from perdure.pregel.plan.callables import signature_of
from perdure.pregel.plan.plan import Calling, Injections


class Invokes(Protocol):
    """An object that is run by a method."""

    def invoke(self, given: Any, /) -> object:
        """Run on an input."""
        ...


class InvokesAsync(Protocol):
    """An object that is run by an async method."""

    def ainvoke(self, given: Any, /) -> Awaitable[object]:
        """Run on an input."""
        ...


class Invocation(NamedTuple):
    """A way to run a runnable.

    Attributes:
        call: its method, a function of the input and of the parameters that `injects` names.
        calling: the way in which the method is called.
        injects: the parameters of the method that are given something else than its input.
    """

    call: Callable[..., Any]
    calling: Calling
    injects: Injections


def is_runnable(thing: object) -> bool:
    """Return True for an object with an `ainvoke` or an `invoke` that is no function and no class."""
    if isinstance(thing, type | partial) or inspect.isroutine(thing):
        return False
    return callable(getattr(thing, "ainvoke", None)) or callable(getattr(thing, "invoke", None))


def invocation_of(runnable: Any) -> Invocation:
    """Choose the way to run a runnable: its `ainvoke` if it has one, else its `invoke` in a thread."""
    call = getattr(runnable, "ainvoke", None)
    calling = Calling.COROUTINE
    if not callable(call):
        call, calling = runnable.invoke, Calling.THREAD
    signature = signature_of(call)
    takes_config = signature is not None and "config" in signature.parameters
    return Invocation(call, calling, (("config", "config"),) if takes_config else ())
