"""A node's own context variables, in the asyncio task of its caller."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar, copy_context

import anyio
import anyio.lowlevel
import pytest

from perdure.aio.contexts import in_context
from tests.unit.aio.causes import CAUSES, BoomError, Cause, Patient, assert_cancelled_once

variable: ContextVar[str] = ContextVar("variable")


async def test_a_variable_set_inside_is_not_seen_outside() -> None:
    variable.set("outer")
    context = copy_context()
    seen = []

    async def sets() -> None:
        seen.append(variable.get())
        variable.set("inner")
        await anyio.lowlevel.checkpoint()
        seen.append(variable.get())

    await in_context(context, sets())

    assert seen == ["outer", "inner"]
    assert variable.get() == "outer"
    assert context[variable] == "inner"


async def test_results_and_errors_pass_through_as_they_are() -> None:
    error = BoomError()

    async def fails() -> None:
        await anyio.lowlevel.checkpoint()
        raise error

    async def returns() -> str:
        return "result"

    assert await in_context(copy_context(), returns()) == "result"
    with pytest.raises(BoomError) as raised:
        await in_context(copy_context(), fails())
    assert raised.value is error


async def test_it_runs_in_the_task_of_the_caller() -> None:
    async def task() -> asyncio.Task[None] | None:
        return asyncio.current_task()

    assert await in_context(copy_context(), task()) is asyncio.current_task()


async def test_an_error_thrown_at_what_is_awaited_can_be_caught_inside() -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def catches() -> str:
        try:
            await future
        except BoomError:
            return "caught"
        return "missed"

    asyncio.get_running_loop().call_soon(future.set_exception, BoomError())

    assert await in_context(copy_context(), catches()) == "caught"


async def test_closed_it_closes_the_coroutine_inside_its_context() -> None:
    variable.set("outer")
    context, seen = copy_context(), list[str]()
    context.run(variable.set, "inner")

    async def waits() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            seen.append(variable.get())

    async def around() -> None:
        await in_context(context, waits())

    coroutine = around()
    coroutine.send(None)
    coroutine.close()

    assert seen == ["inner"]


@pytest.mark.parametrize("cause", [cause for cause in CAUSES if cause.__name__ == "in_a_timeout"])
async def test_a_cancellation_reaches_the_coroutine_once(cause: Cause) -> None:
    patient = Patient()

    async def around() -> None:
        await in_context(copy_context(), patient())

    await cause([patient], around)

    assert_cancelled_once([patient])
