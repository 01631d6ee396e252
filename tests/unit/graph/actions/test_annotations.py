"""Annotations declare channels in every spelling, and nothing is invented."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, Optional, TypedDict, TypeVar, Union

import pytest
import typing_extensions
from pydantic import BaseModel

from perdure.data import Command
from perdure.graph.actions.annotations import (
    NO_HINT,
    destinations_of,
    first_parameter,
    hint_of,
    input_schema_of,
)
from perdure.graph.actions.branches import declared_ends
from perdure.pregel.plan.callables import signature_of

if TYPE_CHECKING:
    from nowhere import Missing  # type: ignore[import-not-found]

T = TypeVar("T")


class Typed(TypedDict):
    x: int


class Extended(typing_extensions.TypedDict):
    x: int


class Parametrised(TypedDict, Generic[T]):
    x: T


@dataclass
class Data:
    x: int


class Model(BaseModel):
    x: int


class Plain:
    pass


def typed(state: Typed) -> None: ...


async def typed_async(state: Typed, other: Missing) -> Missing: ...


def extended(state: Extended) -> None: ...


def data(state: Data) -> None: ...


def model(state: Model) -> None: ...


def parametrised(state: Parametrised[int]) -> None: ...


def annotated(state: Annotated[Typed, "why"]) -> None: ...


def keyword_first(*, other: int = 1, state: Typed) -> None: ...


def second(one: Any, state: Typed) -> None: ...


class Methods:
    def method(self, state: Typed) -> None: ...

    async def __call__(self, state: Data) -> None: ...

    @classmethod
    def of_class(cls, state: Typed) -> None: ...

    @staticmethod
    def of_nobody(state: Typed) -> None: ...


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return function(*args)

    return call


@pytest.mark.parametrize(
    ("action", "schema"),
    [
        (typed, Typed),
        (typed_async, Typed),
        (extended, Extended),
        (data, Data),
        (model, Model),
        (parametrised, Parametrised[int]),
        (annotated, Typed),
        (Methods().method, Typed),
        (Methods(), Data),
        (Methods.of_class, Typed),
        (Methods.of_nobody, Typed),
        (functools.partial(second, 1), Typed),
        (functools.partial(functools.partial(second, 1)), Typed),
        (logged(typed), Typed),
    ],
)
def test_the_first_parameter_declares_the_input(action: Callable[..., Any], schema: Any) -> None:
    assert input_schema_of(action) == schema


def a_dict(state: dict[str, Any]) -> None: ...


def a_mapping(state: Mapping[str, Any]) -> None: ...


def anything(state: Any) -> None: ...


def unannotated(state) -> None: ...  # type: ignore[no-untyped-def]


def plain_class(state: Plain) -> None: ...


def number(state: int) -> None: ...


def optional(state: Typed | None) -> None: ...


def unresolved(state: Missing) -> None: ...


def base_model(state: BaseModel) -> None: ...


def many(*states: Typed) -> None: ...


def nothing() -> None: ...


@pytest.mark.parametrize(
    "action",
    [
        *(a_dict, a_mapping, anything, unannotated, plain_class, number, optional, unresolved, base_model),
        *(many, nothing, keyword_first, dict, print, Plain, lambda state: None),
    ],
)
def test_what_is_no_schema_declares_no_input(action: Callable[..., Any]) -> None:
    assert input_schema_of(action) is None


def test_a_hint_that_cannot_be_resolved_is_given_as_written_and_hides_no_other() -> None:
    assert hint_of(typed_async, "other") == "Missing"
    assert hint_of(typed_async, "state") is Typed
    assert hint_of(typed_async, "more") is NO_HINT
    assert hint_of(len, "obj") is NO_HINT


def test_the_first_parameter_is_the_first_that_takes_a_position() -> None:
    assert first_parameter(signature_of(keyword_first)) is None
    first = first_parameter(signature_of(functools.partial(second, 1)))
    assert first is not None
    assert first.name == "state"


# Functions that wrap others


def asking(state: Typed, extra: int, config: Any = None, *, store: Any = None) -> Command[Literal["a"]]:
    return Command()


def passing_on(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any: ...

    return wrapper


def filling(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(given: Any) -> Any: ...

    return wrapper


def filling_some(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(given: Any, *, flag: bool = True, **more: Any) -> Any: ...

    return wrapper


class Decorating:
    def __init__(self, function: Any) -> None:
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> None: ...


class Decorated:
    @passing_on
    def __call__(self, state: Any, config: Any) -> None: ...

    @passing_on
    def passes_on(self, state: Any, config: Any) -> None: ...


named_partial = functools.update_wrapper(functools.partial(asking, extra=1), asking)

ASKED = ["state", "extra", "config", "store"]


@pytest.mark.parametrize(
    ("action", "names"),
    [
        (passing_on(asking), ASKED),
        (passing_on(passing_on(asking)), ASKED),
        (functools.cache(asking), ASKED),
        (Decorating(asking), ASKED),
        (filling(asking), ["given"]),
        (passing_on(filling(asking)), ["given"]),
        (functools.cache(filling(asking)), ["given"]),
        (filling(passing_on(asking)), ["given"]),
        (filling_some(asking), ["given", "flag", "extra", "config", "store", "more"]),
        (functools.partial(passing_on(second), 1), ["state"]),
        (functools.partial(passing_on(filling(asking))), ["given"]),
        (Decorated(), ["state", "config"]),
        (Decorated().passes_on, ["state", "config"]),
        (named_partial, ["state", "extra", "config", "store"]),
    ],
)
def test_a_function_is_called_as_it_says_itself_and_as_what_it_passes_everything_on_to(
    action: Callable[..., Any], names: list[str]
) -> None:
    assert list(signature(action).parameters) == names


def signature(action: Callable[..., Any]) -> inspect.Signature:
    told = signature_of(action)
    assert told is not None
    return told


def test_what_a_function_passes_on_by_name_it_may_fill_itself() -> None:
    signature(filling_some(asking)).bind(object())
    signature(named_partial).bind(object())


@pytest.mark.parametrize(
    "action",
    [passing_on(asking), filling(asking), filling_some(asking), Decorating(asking), functools.cache(asking)],
)
def test_a_function_that_wraps_another_declares_what_the_other_does(action: Any) -> None:
    assert input_schema_of(action) is Typed
    assert destinations_of(action) == ("a",)


def to_one(state: Any) -> Command[Literal["a"]]:
    return Command()


async def to_two(state: Any) -> Command[Literal["a", "__end__"]]:
    return Command()


def by_union(state: Any) -> Union[Typed, Command[Literal["a"]]]:  # noqa: UP007
    return Command()


def by_bar(state: Any) -> Typed | Command[Literal["a"]] | None:
    return Command()


def by_optional(state: Any) -> Optional[Command[Literal["a"]]]:  # noqa: UP045
    return Command()


def by_two(state: Any) -> Command[Literal["a"]] | Command[Literal["b"]]:
    return Command[Literal["a"]](goto="a")


def by_list(state: Any) -> Sequence[Command[Literal["a"]] | Typed]:
    return []


def by_annotated(state: Any) -> Annotated[Command[Literal["a"]], "why"]:
    return Command()


class Commands:
    async def __call__(self, state: Any) -> Command[Literal["a"]]:
        return Command()


@pytest.mark.parametrize(
    ("action", "destinations"),
    [
        (to_one, ("a",)),
        (to_two, ("a", "__end__")),
        (by_union, ("a",)),
        (by_bar, ("a",)),
        (by_optional, ("a",)),
        (by_two, ("a", "b")),
        (by_list, ("a",)),
        (by_annotated, ("a",)),
        (Commands(), ("a",)),
        (functools.partial(to_one), ("a",)),
        (logged(to_one), ("a",)),
    ],
)
def test_a_command_declares_where_it_goes(action: Callable[..., Any], destinations: tuple[str, ...]) -> None:
    assert destinations_of(action) == destinations


def bare(state: Any) -> Command:
    return Command()


def any_name(state: Any) -> Command[str]:
    return Command()


def literal(state: Any) -> Literal["a"]:
    return "a"


@pytest.mark.parametrize("action", [bare, any_name, literal, typed, unresolved, lambda state: None, len])
def test_what_is_no_command_of_literals_declares_no_destination(action: Callable[..., Any]) -> None:
    assert destinations_of(action) is None


def to_a_or_end(state: Any) -> Literal["a", "__end__"]:
    return "a"


def literal_ends(path: Callable[[Any], Any]) -> Any:
    return declared_ends(hint_of(path, "return"))


def test_a_literal_return_declares_where_a_path_leads() -> None:
    assert literal_ends(to_a_or_end) == {"a": "a", "__end__": "__end__"}


def to_somewhere(state: Any) -> Nowhere:  # type: ignore[name-defined]  # noqa: F821
    return None


@pytest.mark.parametrize("path", [typed, to_somewhere, lambda state: "a", functools.partial(typed)])
def test_other_returns_declare_nothing(path: Callable[[Any], Any]) -> None:
    assert literal_ends(path) is None


class RoutesByCall:
    def __call__(self, state: Any) -> Literal["a"]:
        return "a"


def test_a_callable_object_declares_by_its_call() -> None:
    assert literal_ends(RoutesByCall()) == {"a": "a"}


def test_a_partial_declares_what_its_function_does() -> None:
    assert literal_ends(functools.partial(to_a_or_end)) == {"a": "a", "__end__": "__end__"}
