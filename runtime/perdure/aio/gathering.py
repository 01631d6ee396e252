"""Several calls side by side, with their outcomes in the order of the calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import anyio.lowlevel

from perdure.aio.cancellation import CancelledError
from perdure.aio.siblings import Siblings
from perdure.constants import MISSING

Call = Callable[[], Awaitable[Any]]


async def all_of(calls: Sequence[Call], *, limit: int | None = None, keep_errors: bool = False) -> list[Any]:
    """Make all calls, begun in their order and at most `limit` at a time, and return their outcomes.

    The first error stops the other calls and is raised as itself. With `keep_errors` an error stands in
    the place of its call's result, and stops nothing.
    """
    siblings = Siblings()
    outcomes: list[Any] = [MISSING] * len(calls)
    failures: list[BaseException] = []

    async def fail(error: BaseException) -> None:
        failures.append(error)
        # All calls begin in one turn of the loop. One that fails in its first step lets the others begin:
        # whether they do is not to depend on their order.
        await anyio.lowlevel.cancel_shielded_checkpoint()
        siblings.stop()

    async def make(index: int, call: Call) -> None:
        try:
            outcomes[index] = await call()
        except CancelledError as error:
            # Siblings that are not stopping were not cancelled: this comes from inside the call.
            if not siblings.stopping:
                await fail(error)
        except Exception as error:
            if keep_errors:
                outcomes[index] = error
            else:
                await fail(error)
        except BaseException as signal:
            await fail(signal)

    cancelled = await siblings.run([partial(make, *each) for each in enumerate(calls)], limit)
    if cancelled is not None:
        raise cancelled
    if failures:
        raise failures[0]
    return outcomes
