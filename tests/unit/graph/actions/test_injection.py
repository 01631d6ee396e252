"""Parameters are injected by name, kind and annotation, in every spelling."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Optional, Union

import pytest

from perdure.config import RunnableConfig
from perdure.data import NodeError, StreamWriter
from perdure.errors import PerdureWarning
from perdure.graph.actions.injection import injections_of
from perdure.runtime import Runtime

if TYPE_CHECKING:
    import elsewhere  # type: ignore[import-not-found]
    from elsewhere import BaseStore, Ctx

Config = RunnableConfig


def asked(function: Callable[..., Any]) -> set[str]:
    wanted = injections_of(function)
    assert all(parameter == what for parameter, what in wanted)
    return {what for _, what in wanted}


def unannotated(state, config, writer, store, previous, runtime, error) -> None: ...  # type: ignore[no-untyped-def]


def anything(state: Any, config: Any, store: Any, writer: Any = None) -> None: ...


def keywords(state: Any, *, config: RunnableConfig, runtime: Runtime[Any], previous: int) -> None: ...


def defaults(state: Any, config: RunnableConfig | None = None, store: BaseStore | None = None) -> None: ...


def test_every_name_is_known_where_it_is_not_annotated_or_as_anything() -> None:
    assert asked(anything) == {"config", "store", "writer"}
    assert asked(unannotated) == {"config", "writer", "store", "previous", "runtime", "error"}


def test_keyword_parameters_and_such_with_defaults_are_given_too() -> None:
    assert asked(keywords) == {"config", "runtime", "previous"}
    assert asked(defaults) == {"config", "store"}


def config_1(state: Any, config: RunnableConfig) -> None: ...


def config_2(state: Any, config: Optional[RunnableConfig]) -> None: ...  # noqa: UP045


def config_3(state: Any, config: RunnableConfig | None) -> None: ...


def config_4(state: Any, config: RunnableConfig | None) -> None: ...


def config_5(state: Any, config: Union[RunnableConfig, None]) -> None: ...  # noqa: UP007


def config_6(state: Any, config: elsewhere.RunnableConfig) -> None: ...


def config_7(state: Any, config: Optional[elsewhere.RunnableConfig]) -> None: ...  # noqa: UP045


def config_8(state: Any, config: elsewhere.RunnableConfig | None) -> None: ...


def config_9(state: Any, config: Config) -> None: ...


def evaluated(name: str, annotation: Any) -> Callable[..., Any]:
    """Return a function whose annotation is an object, as without `from __future__ import annotations`."""
    actions: dict[str, Any] = {"config": lambda state, config: None, "writer": lambda state, writer: None}
    action: Callable[..., Any] = actions[name]
    action.__annotations__ = {name: annotation}
    return action


def config_or_mapping(state: Any, config: RunnableConfig | Mapping[str, Any] | None = None) -> None: ...


@pytest.mark.parametrize(
    "function",
    [
        *(config_1, config_2, config_3, config_4, config_5, config_6, config_7, config_8, config_9),
        *(evaluated("config", RunnableConfig), evaluated("config", Optional["RunnableConfig"])),
        *(
            evaluated("config", Optional["elsewhere.RunnableConfig"]),
            evaluated("config", RunnableConfig | None),
        ),
        config_or_mapping,
    ],
)
def test_a_config_is_known_in_every_spelling(function: Callable[..., Any]) -> None:
    assert "config" in asked(function)


def config_dict(state: Any, config: dict[str, Any] = {}) -> None: ...  # noqa: B006


def config_other(state: Any, config: elsewhere.Other = None) -> None: ...


@pytest.mark.parametrize(
    ("function", "shown"),
    [(config_dict, "dict"), (config_other, "elsewhere.Other")],
)
def test_a_config_that_is_annotated_as_something_else_is_not_given_and_warned_of(
    function: Callable[..., Any], shown: str
) -> None:
    with pytest.warns(PerdureWarning, match="should be typed as 'RunnableConfig' or 'Runn") as warned:
        assert asked(function) == set()

    assert shown in str(warned[0].message)


def writer_1(state: Any, writer: StreamWriter) -> None: ...


def writer_2(state: Any, writer: elsewhere.StreamWriter) -> None: ...


def store_1(state: Any, store: BaseStore) -> None: ...


def store_2(state: Any, store: Optional[BaseStore]) -> None: ...  # noqa: UP045


def store_3(state: Any, store: elsewhere.base.BaseStore | None) -> None: ...


def error_1(state: Any, error: NodeError) -> None: ...


def runtime_1(state: Any, runtime: Runtime[Ctx]) -> None: ...


def previous_1(state: Any, previous: int | None) -> None: ...


@pytest.mark.parametrize(
    ("function", "what"),
    [
        *((writer_1, "writer"), (writer_2, "writer"), (store_1, "store"), (store_2, "store")),
        *((store_3, "store"), (error_1, "error"), (runtime_1, "runtime"), (previous_1, "previous")),
        (evaluated("writer", StreamWriter), "writer"),
    ],
)
def test_the_others_are_known_by_their_types(function: Callable[..., Any], what: str) -> None:
    assert asked(function) == {what}


def other_types(state: Any, writer: int = 0, store: str = "", error: str = "") -> None: ...


def input_named_config(config: Any) -> None: ...


def input_named_runtime(runtime: Runtime[Any], *, config: RunnableConfig) -> None: ...


def collected(state: Any, *config: Any, **runtime: Any) -> None: ...


def test_what_only_shares_a_name_is_left_alone() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert asked(other_types) == set()
        assert asked(input_named_config) == set()
        assert asked(input_named_runtime) == {"config"}
        assert asked(collected) == set()
        assert asked(len) == set()
        assert asked(print) == set()


def test_what_a_partial_has_filled_is_not_given_again() -> None:
    assert asked(functools.partial(config_1, config={})) == set()
    assert asked(functools.partial(keywords, runtime=Runtime())) == {"config", "previous"}


class Asks:
    def __call__(self, state: Any, config: RunnableConfig) -> None: ...

    def method(self, state: Any, runtime: Runtime[Any]) -> None: ...


def test_methods_and_callable_objects_are_looked_into() -> None:
    assert asked(Asks()) == {"config"}
    assert asked(Asks().method) == {"runtime"}
