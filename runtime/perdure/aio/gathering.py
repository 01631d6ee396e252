"""Several calls side by side, whose outcomes come back in the order of the calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio

from perdure.constants import MISSING

Call = Callable[[], Awaitable[Any]]


async def all_of(calls: Sequence[Call], *, limit: int | None = None, keep_errors: bool = False) -> list[Any]:
    """Make all calls, at most `limit` at a time, begun in their order.

    The first error stops the others and is raised as itself; with `keep_errors` it stands in the
    place of its call's result, and stops nothing.
    """
    outcomes: list[Any] = [MISSING] * len(calls)
    failures: list[BaseException] = []
    waiting = iter(enumerate(calls))

    async def work() -> None:
        for index, call in waiting:
            try:
                outcomes[index] = await call()
            except anyio.get_cancelled_exc_class():
                raise
            except Exception as error:
                if not keep_errors:
                    fail(error)
                    return
                outcomes[index] = error
            except BaseException as signal:
                fail(signal)
                return

    def fail(error: BaseException) -> None:
        failures.append(error)
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for _ in range(len(calls) if limit is None else min(limit, len(calls))):
            group.start_soon(work)
    if failures:
        raise failures[0]
    return outcomes
