"""What can be a node, how it is called, and what it is called."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from perdure.errors import GraphValidationError, NodeSignatureError
from perdure.graph.actions import calling_of, check_action, check_path, name_of
from perdure.pregel.plan import Calling


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


@pytest.mark.parametrize(
    ("action", "name"),
    [
        (coroutine, "coroutine"),
        (functools.partial(coroutine), "coroutine"),
        (AsyncCallable(), "AsyncCallable"),
        (AsyncCallable().method, "method"),
        (lambda state: None, "<lambda>"),
    ],
)
def test_a_function_is_called_by_its_own_name(action: Callable[[Any], Any], name: str) -> None:
    assert name_of(action) == name


def test_a_lambda_takes_the_default_name() -> None:
    assert name_of(lambda state: None, default="condition") == "condition"
    assert name_of(coroutine, default="condition") == "coroutine"


def generator(state: Any) -> Iterator[int]:
    yield 1


async def async_generator(state: Any) -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("action", [generator, async_generator])
def test_generators_are_refused(action: Callable[..., Any]) -> None:
    with pytest.raises(NodeSignatureError, match="Node 'n' is a generator"):
        check_action("n", action)


def no_parameter() -> None: ...


def two_parameters(state: Any, more: Any) -> None: ...


def keyword_parameter(state: Any, *, more: Any) -> None: ...


@pytest.mark.parametrize("action", [no_parameter, two_parameters, keyword_parameter])
def test_what_cannot_be_called_with_the_state_alone_is_refused(action: Callable[..., Any]) -> None:
    with pytest.raises(NodeSignatureError, match=r"Node 'n' has the signature .* one argument, the state"):
        check_action("n", action)
    with pytest.raises(NodeSignatureError, match="The conditional edge of 'n' has the signature"):
        check_path("n", action)


@pytest.mark.parametrize("action", [5, {"a": 1}, None])
def test_what_cannot_be_called_is_refused(action: Any) -> None:
    with pytest.raises(GraphValidationError, match=r"Node 'n' is .*, which cannot be called"):
        check_action("n", action)


def test_further_parameters_with_defaults_are_allowed() -> None:
    check_action("n", lambda state, more=1: None)
    check_action("n", functools.partial(two_parameters, more=1))
    check_action("n", lambda *args: None)
