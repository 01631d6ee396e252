"""Context variables of a node's own, without an asyncio task of its own."""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any

from perdure.aio.cancellation import Wakings, note_waking


@types.coroutine
def in_context(
    context: Context,
    coroutine: Coroutine[Any, Any, Any],
    woken: Wakings | None = None,
) -> Generator[Any, Any, Any]:
    """Await `coroutine` here, in this asyncio task, but with the context variables of `context`.

    What a node sets is then seen by nobody else, as if it ran in a task of its own, without the
    price of one. Every step of the coroutine is taken inside `context`; what it waits for, and what
    is thrown at it, passes through untouched; what of that was a task group's own doing is noted in `woken`.
    """
    step: Callable[[Any], Any] = coroutine.send
    argument: Any = None
    while True:
        try:
            waited_for = context.run(step, argument)
        except StopIteration as returned:
            return returned.value
        try:
            argument = yield waited_for
            step = coroutine.send
        except GeneratorExit:
            context.run(coroutine.close)
            raise
        except BaseException as thrown:
            if woken is not None:
                note_waking(woken, coroutine, thrown)
            argument, step = thrown, coroutine.throw
