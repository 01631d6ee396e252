"""The mark that a failed asyncio.TaskGroup leaves on its task, and when nothing needs to know it any more."""

from __future__ import annotations

import asyncio
import contextlib
import re
import tomllib
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest

from perdure.aio.cancellation import cancellations
from perdure.aio.contexts import in_context
from perdure.aio.wakings import GROUPS_TAKE_BACK, TAKEN_BACK_SINCE
from tests.unit.aio.causes import BoomError, turns

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"


async def fails(after_turns: int = 0) -> None:
    await turns(after_turns)
    raise BoomError


async def survives_a_group() -> None:
    """Wait in the end of a group for a child that fails."""
    with contextlib.suppress(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(fails())


async def survives_a_group_that_fails_in_its_body() -> None:
    """Be woken in the body of a group: every Python takes that back."""
    with contextlib.suppress(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(fails())
            await turns(10)


async def survives_several_groups() -> None:
    await survives_a_group()
    await survives_a_group_that_fails_in_its_body()
    await survives_a_group()


async def survives_nested_groups() -> None:
    with contextlib.suppress(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(fails(after_turns=3))
            await survives_a_group()


async def survives_a_group_further_in() -> None:
    """Have contexts, scopes and coroutines around the group."""
    await in_context(copy_context(), survives_a_group())
    async with asyncio.timeout(60):
        await survives_a_group()


SURVIVORS = [
    survives_a_group,
    survives_a_group_that_fails_in_its_body,
    survives_several_groups,
    survives_nested_groups,
    survives_a_group_further_in,
]


async def as_task(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Do work in a task of its own, which no other test shares."""
    return await asyncio.create_task(work())


async def test_this_interpreter_takes_back_what_its_groups_do_or_not_as_we_say() -> None:
    """Else the gate is wrong for it: `TAKEN_BACK_SINCE` has to say since when they do."""

    async def mark() -> int:
        await survives_a_group()
        return cancellations()

    assert (await as_task(mark) == 0) == GROUPS_TAKE_BACK


def test_the_frame_walk_is_needed_by_a_python_that_we_support() -> None:
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    oldest = re.fullmatch(r">=(\d+)\.(\d+)", project["requires-python"])
    assert oldest is not None

    assert tuple(map(int, oldest.groups())) < TAKEN_BACK_SINCE, (
        "No Python that is supported needs perdure/aio/wakings.py any more: remove it, what "
        "`in_context` does with it, and this file."
    )


@pytest.mark.parametrize("survives", SURVIVORS)
async def test_who_survives_a_group_that_failed_leaves_no_mark(
    survives: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    async def after() -> int:
        await in_context(copy_context(), survives())
        return cancellations()

    assert await as_task(after) == 0


async def test_a_group_whose_error_is_raised_leaves_no_mark() -> None:
    async def raises() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fails())

    async def after() -> int:
        with pytest.raises(ExceptionGroup):
            await in_context(copy_context(), raises())
        return cancellations()

    assert await as_task(after) == 0


async def test_a_cancellation_from_outside_is_not_taken_back_with_the_mark() -> None:
    survived = asyncio.Event()

    async def is_cancelled_afterwards() -> None:
        await survives_a_group()
        survived.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    async def after() -> int:
        await in_context(copy_context(), is_cancelled_afterwards())
        return cancellations()

    task = asyncio.create_task(after())
    await survived.wait()
    task.cancel()

    assert await task == 1


async def test_a_cancellation_from_outside_while_a_group_ends_is_not_taken_back() -> None:
    cleaning_up, may_end = asyncio.Event(), asyncio.Event()

    async def slow_to_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaning_up.set()
            await may_end.wait()

    async def survives() -> None:
        with contextlib.suppress(ExceptionGroup, asyncio.CancelledError):
            async with asyncio.TaskGroup() as group:
                group.create_task(slow_to_end())
                group.create_task(fails(after_turns=2))

    async def after() -> int:
        await in_context(copy_context(), survives())
        return cancellations()

    task = asyncio.create_task(after())
    await cleaning_up.wait()
    await turns(3)
    task.cancel()
    await turns(3)
    may_end.set()
    await asyncio.wait([task])

    assert task.cancelling() == 1
    assert task.cancelled() == GROUPS_TAKE_BACK  # these also see to it that it is raised


async def test_a_group_that_is_cancelled_while_it_waits_keeps_the_mark_of_who_cancelled_it() -> None:
    waiting = asyncio.Event()

    async def waits() -> None:
        waiting.set()
        await asyncio.Event().wait()

    async def swallows() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            async with asyncio.TaskGroup() as group:
                group.create_task(waits())

    async def after() -> int:
        await in_context(copy_context(), swallows())
        return cancellations()

    task = asyncio.create_task(after())
    await waiting.wait()
    task.cancel()

    assert await task == 1


async def test_an_asyncio_timeout_around_still_tells_its_own_cancellation() -> None:
    async def times_out() -> None:
        async with asyncio.timeout(60) as timeout:
            await in_context(copy_context(), survives_a_group())
            timeout.reschedule(asyncio.get_running_loop().time())
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await as_task(times_out)
