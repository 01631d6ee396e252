"""A node's own context variables, without an asyncio task of its own."""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, TypeVar

from perdure.aio.wakings import Wakings, note_waking, take_back

T = TypeVar("T")


@types.coroutine
def in_context(context: Context, coroutine: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    """Await `coroutine` in this asyncio task, but with the context variables of `context`.

    What a node sets is then seen by nobody else, as if it ran in a task of its own, without the price
    of one. When the coroutine ends, this also takes back what a task group in it has left on the task
    (see `perdure.aio.wakings`).
    """
    wakings: Wakings = []
    step: Callable[[Any], Any] = coroutine.send
    argument: Any = None
    while True:
        try:
            waited_for = context.run(step, argument)
        except StopIteration as returned:
            if wakings:
                take_back(wakings)
            return returned.value  # type: ignore[no-any-return]  # the result of the coroutine
        except BaseException:
            take_back(wakings)
            raise
        try:
            argument = yield waited_for  # to the event loop, as the coroutine itself would
            step = coroutine.send
        except GeneratorExit:
            context.run(coroutine.close)
            raise
        except BaseException as thrown:
            note_waking(wakings, coroutine, thrown)
            argument, step = thrown, coroutine.throw
