"""Objects that count as runnables, and their invocation."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from perdure.pregel.plan.plan import Calling
from perdure.pregel.plan.runnables import invocation_of, is_runnable


class Async:
    async def ainvoke(self, given: Any, config: Any = None) -> Any: ...


class Sync:
    def invoke(self, given: Any) -> Any: ...


class Names:
    """An object with the names of a runnable's methods, but without the methods."""

    ainvoke = invoke = "text"


def function(given: Any) -> None: ...


function.invoke = function  # type: ignore[attr-defined]


def test_an_object_with_either_method_is_run() -> None:
    assert is_runnable(Async())
    assert is_runnable(Sync())


@pytest.mark.parametrize(
    "thing", [Async, Async().ainvoke, function, functools.partial(function), Names(), {}, None, 5, "invoke"]
)
def test_classes_functions_and_everything_else_are_not(thing: Any) -> None:
    assert not is_runnable(thing)


def test_ainvoke_is_preferred_and_a_config_given_where_it_is_taken() -> None:
    class Both(Async, Sync):
        pass

    both, sync = Both(), Sync()

    assert invocation_of(both) == (both.ainvoke, Calling.COROUTINE, (("config", "config"),))
    assert invocation_of(sync) == (sync.invoke, Calling.THREAD, ())
