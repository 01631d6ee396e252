"""The threads that sync nodes run in: how many there are, when they end, what they hand back."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from perdure.aio import threads
from perdure.aio.threads import in_thread


class BoomError(Exception):
    pass


def this_thread(argument: Any) -> threading.Thread:
    return threading.current_thread()


def raises(error: BaseException) -> Callable[[Any], Any]:
    def call(argument: Any) -> Any:
        raise error

    return call


class Held:
    """A call that tells when it was entered, and returns when it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.leave = threading.Event()

    def __call__(self, argument: Any) -> Any:
        self.entered.set()
        self.leave.wait(30)
        return argument


def called(call: Callable[[Any], Any], argument: Any = None) -> asyncio.Task[Any]:
    """Call a function as a node is called: in its own context."""
    return asyncio.create_task(in_thread(call, argument))


async def test_a_thread_is_used_again() -> None:
    first, second = await called(this_thread), await called(this_thread)

    assert first is second is not threading.current_thread()


async def test_calls_beyond_the_bound_wait_for_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "WORKER_THREADS", 2)
    held = [Held() for _ in range(5)]
    calls = [called(call, number) for number, call in enumerate(held)]
    await asyncio.to_thread(held[1].entered.wait, 30)
    for _ in range(20):
        await anyio.lowlevel.checkpoint()

    assert [call.entered.is_set() for call in held] == [True, True, False, False, False]
    for call in held:
        call.leave.set()
    assert [await call for call in calls] == [0, 1, 2, 3, 4]


async def test_a_call_that_is_cancelled_while_it_waits_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "WORKER_THREADS", 1)
    held, waiting, after = Held(), Held(), Held()
    after.leave.set()
    first, second, third = (called(call, 1) for call in (held, waiting, after))
    await asyncio.to_thread(held.entered.wait, 30)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    held.leave.set()

    assert (await first, await third) == (1, 1)
    assert not waiting.entered.is_set()


async def test_a_thread_that_is_idle_for_long_ends_and_another_takes_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "IDLE_SECONDS", 0.01)
    first = await in_thread(this_thread, None)
    await asyncio.to_thread(first.join, 30)

    assert not first.is_alive()
    assert (await in_thread(this_thread, None)).is_alive()


async def test_a_thread_that_cannot_be_started_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        def __init__(self, pool: threads.Pool) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads, "WORKER_THREADS", 1)
    with monkeypatch.context() as limited:
        limited.setattr(threads, "Worker", Refusing)
        with pytest.raises(RuntimeError, match="can't start"):
            await called(this_thread)

    with anyio.fail_after(30):
        assert await called(this_thread)


def test_a_thread_ends_when_its_loop_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "IDLE_SECONDS", 0.01)
    thread = asyncio.run(in_thread(this_thread, None))
    thread.join(30)

    assert not thread.is_alive()


def test_a_call_that_ends_after_its_loop_ends_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "THREAD_SECONDS", 0.01)
    held, seen = Held(), list[threading.Thread]()

    def call(argument: Any) -> None:
        seen.append(threading.current_thread())
        held(argument)

    async def main() -> None:
        with anyio.move_on_after(30) as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(in_thread, call, None)
                await asyncio.to_thread(held.entered.wait, 30)
                scope.cancel()

    asyncio.run(main())
    held.leave.set()
    seen[0].join(30)

    assert not seen[0].is_alive()


@pytest.mark.parametrize("error", [BoomError("no"), SystemExit(3), KeyboardInterrupt()], ids=repr)
async def test_what_a_call_raises_is_raised(error: BaseException) -> None:
    with pytest.raises(type(error)) as raised:
        await in_thread(raises(error), None)

    assert raised.value is error


async def test_a_call_that_stops_an_iteration_does_not_end_the_coroutine_that_made_it() -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        await in_thread(raises(StopIteration(5)), None)


async def test_an_error_goes_with_the_last_who_holds_it() -> None:
    def fails(argument: Any) -> None:
        raise BoomError

    async def failed() -> weakref.ref[BoomError]:
        try:
            await called(fails)
        except BoomError as error:
            return weakref.ref(error)
        raise AssertionError

    gc.collect()
    gc.disable()
    try:
        gone = await failed()
        await called(this_thread)  # before that, the thread has let go of the call
        assert gone() is None
    finally:
        gc.enable()
