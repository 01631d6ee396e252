"""The sync face: blocking forms of async methods, which are generated from them."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, ParamSpec, TypeVar

from perdure.aio.portal import call_on, items_of, loop_for

P = ParamSpec("P")
T = TypeVar("T")


def sync_of(method: Callable[P, Awaitable[T]]) -> Callable[P, T]:
    """Make the sync form of an async method, which has its name without the leading "a".

    The object that the method belongs to returns from `home()` the event loop on which its calls have to
    be made; None if any loop will do.
    """
    name = method.__name__

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return call_on(functools.partial(method, *args, **kwargs), name, loop_for(name, _home_of(args)))

    return _named(call, name)


def sync_iterator_of(method: Callable[P, AsyncIterator[T]]) -> Callable[P, Iterator[T]]:
    """Make the sync form of a method that returns an async iterator.

    It returns an iterator. Leaving that early closes the async one.
    """
    name = method.__name__

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        async def begin() -> AsyncIterator[T]:  # on the loop, where the async iterator is to live
            return method(*args, **kwargs)

        loop = loop_for(name, _home_of(args))
        return items_of(call_on(begin, name, loop), name, loop)

    return _named(call, name)


def _home_of(args: tuple[Any, ...]) -> Any:
    return args[0].home()


def _named(call: Callable[P, T], name: str) -> Callable[P, T]:
    call.__name__ = name.removeprefix("a")
    call.__qualname__ = call.__qualname__.rpartition(".")[0] + "." + call.__name__
    call.__doc__ = f"Call `{name}` and wait for it, in a thread that runs no event loop."
    return call
