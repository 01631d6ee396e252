"""Functions, and whatever else is called."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from perdure.errors import NodeSignatureError
from perdure.pregel.plan.callables import calling_of, check_callable, signature_of
from perdure.pregel.plan.plan import Calling


async def coroutine(state: Any) -> None: ...


def function(state: Any) -> None: ...


class AsyncCallable:
    async def __call__(self, state: Any) -> None: ...

    async def method(self, state: Any) -> None: ...


class SyncCallable:
    def __call__(self, state: Any) -> None: ...


@pytest.mark.parametrize(
    ("action", "calling"),
    [
        (coroutine, Calling.COROUTINE),
        (functools.partial(coroutine), Calling.COROUTINE),
        (functools.partial(functools.partial(coroutine)), Calling.COROUTINE),
        (AsyncCallable(), Calling.COROUTINE),
        (AsyncCallable().method, Calling.COROUTINE),
        (functools.partial(AsyncCallable()), Calling.COROUTINE),
        (function, Calling.THREAD),
        (functools.partial(function), Calling.THREAD),
        (SyncCallable(), Calling.THREAD),
        (dict, Calling.THREAD),
        (lambda state: None, Calling.THREAD),
    ],
)
def test_coroutine_functions_are_known_in_every_wrapping(
    action: Callable[[Any], Any], calling: Calling
) -> None:
    assert calling_of(action) is calling


def test_a_builtin_that_does_not_tell_has_no_signature() -> None:
    assert signature_of(dict) is None
    assert signature_of(function) == inspect.signature(function)


def test_a_builtin_that_does_not_tell_is_not_refused() -> None:
    check_callable("It", dict, given="the state", remedy="")


def test_the_refusal_says_what_is_called_with_what_and_what_to_do() -> None:
    with pytest.raises(NodeSignatureError) as refused:
        check_callable("It", function, given="the state", named=["config"], remedy="Take it.")

    assert str(refused.value) == (
        "It has the signature (state: 'Any') -> 'None', but is called with one argument, the state, and "
        "'config': got an unexpected keyword argument 'config'. Take it."
    )
