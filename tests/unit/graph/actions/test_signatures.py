"""The kinds of actions, and the names of their nodes."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from perdure.config import RunnableConfig
from perdure.data import NodeError
from perdure.errors import GraphValidationError, NodeSignatureError
from perdure.graph.actions.names import name_of
from perdure.graph.actions.signatures import check_action, check_path
from perdure.runtime import Runtime


async def coroutine(state: Any) -> None: ...


class AsyncCallable:
    async def __call__(self, state: Any) -> None: ...

    async def method(self, state: Any) -> None: ...


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


class Named:
    """As the runnables of other packages are."""

    def get_name(self) -> str:
        return "by itself"

    async def ainvoke(self, given: Any) -> Any: ...


class Unnamed:
    def invoke(self, given: Any) -> Any: ...


def test_a_runnable_is_called_what_it_says_or_after_its_class() -> None:
    assert name_of(Named()) == "by itself"
    assert name_of(Unnamed()) == "Unnamed"


@pytest.mark.parametrize("action", [5, {"a": len}, None])
def test_what_cannot_be_called_has_no_name(action: Any) -> None:
    with pytest.raises(GraphValidationError, match="Expected a function or another callable, got"):
        name_of(action)


def generator(state: Any) -> Iterator[int]:
    yield 1


async def async_generator(state: Any) -> AsyncIterator[int]:
    yield 1


class Generates:
    def __call__(self, state: Any) -> Iterator[int]:
        yield 1


@pytest.mark.parametrize(
    "action", [generator, async_generator, Generates(), Generates().__call__, functools.partial(generator)]
)
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


def takes_a_config(config: RunnableConfig) -> None: ...


def takes_a_runtime(first: Runtime[Any], state: Any = None) -> None: ...


def takes_an_error(error: NodeError) -> None: ...


@pytest.mark.parametrize("action", [takes_a_config, takes_a_runtime, takes_an_error])
def test_what_is_given_beside_the_state_is_no_first_parameter(action: Callable[..., Any]) -> None:
    message = r"^Node 'n' takes the state as its first .* as a (RunnableConfig|Runtime|NodeError)\. Put"
    with pytest.raises(NodeSignatureError, match=message):
        check_action("n", action)


@pytest.mark.parametrize("action", [5, {"a": 1}, None])
def test_what_cannot_be_called_is_refused(action: Any) -> None:
    with pytest.raises(GraphValidationError, match=r"Node 'n' is .*, which cannot be called"):
        check_action("n", action)


def test_parameters_that_are_given_by_name_are_allowed_and_those_that_nobody_gives_are_named() -> None:
    def action(state: Any, config: Any, *, store: Any, mode: str) -> None: ...

    given: Any = (("config", "config"), ("store", "store"))
    check_action("n", functools.partial(action, mode="x"), given)
    check_path("n", functools.partial(action, mode="x"), given)
    with pytest.raises(
        NodeSignatureError, match=r"the state, and 'config', and 'store': .*'mode'.* ask, by"
    ) as e:
        check_action("n", action, given)
    assert "config, writer, store, previous, runtime, error" in str(e.value)


def test_further_parameters_with_defaults_are_allowed() -> None:
    check_action("n", lambda state, more=1: None)
    check_action("n", functools.partial(two_parameters, more=1))
    check_action("n", lambda *args: None)
