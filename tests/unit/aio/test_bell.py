"""A signal between an event loop and the threads beside it."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from perdure.aio import bell as bell_module
from perdure.aio.bell import Bell
from tests.unit.aio.causes import turns


class Counted:
    """Count how often a thread goes through the loop of a bell."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        loop = asyncio.get_running_loop()
        through = loop.call_soon_threadsafe

        def count(callback: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if getattr(callback, "__self__", None).__class__ is Bell:
                self.calls += 1
            return through(callback, *args, **kwargs)

        monkeypatch.setattr(loop, "call_soon_threadsafe", count)


async def in_thread(call: Callable[[], Any]) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, call)


async def test_a_ring_on_the_loop_wakes_all_who_wait() -> None:
    bell = Bell()
    waits = [asyncio.create_task(bell.wait()) for _ in range(3)]
    await turns(2)
    bell.ring()

    await asyncio.gather(*waits)


async def test_a_ring_in_a_thread_wakes_all_who_wait() -> None:
    bell = Bell()
    waits = [asyncio.create_task(bell.wait()) for _ in range(3)]
    await turns(2)
    await in_thread(bell.ring)

    await asyncio.gather(*waits)


@pytest.mark.parametrize("threaded", [False, True])
async def test_rings_that_nobody_waits_for_end_the_next_wait_and_no_other(threaded: bool) -> None:
    bell = Bell()
    for _ in range(3):
        if threaded:
            await in_thread(bell.ring)
        else:
            bell.ring()

    await bell.wait()
    again = asyncio.create_task(bell.wait())
    await turns(5)
    assert not again.done()
    bell.ring()
    await again


@pytest.mark.parametrize("threaded", [False, True])
async def test_a_ring_that_has_woken_somebody_does_not_end_the_next_wait(threaded: bool) -> None:
    bell = Bell()
    woken = asyncio.create_task(bell.wait())
    await turns(2)
    if threaded:
        await in_thread(bell.ring)
    else:
        bell.ring()
    await woken

    again = asyncio.create_task(bell.wait())
    await turns(5)
    assert not again.done()
    again.cancel()


@pytest.mark.parametrize("threaded", [False, True])
async def test_a_ring_that_a_cancelled_wait_would_have_got_ends_the_next(threaded: bool) -> None:
    bell = Bell()
    cancelled = asyncio.create_task(bell.wait())
    await turns(2)
    cancelled.cancel()
    if threaded:
        await in_thread(bell.ring)
    else:
        bell.ring()

    await bell.wait()
    await turns(2)
    assert cancelled.cancelled()


async def test_cancelled_waits_leave_nothing_behind() -> None:
    bell = Bell()
    for _ in range(3):
        wait = asyncio.create_task(bell.wait())
        await turns(2)
        wait.cancel()
        await turns(2)

    assert bell._waiting == []


async def test_a_thread_goes_through_the_loop_once_until_somebody_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bell, counted = Bell(), Counted(monkeypatch)

    def ring_often() -> None:
        for _ in range(1_000):
            bell.ring()

    await in_thread(ring_often)
    await turns(2)
    await in_thread(ring_often)
    assert counted.calls == 1

    await bell.wait()
    await in_thread(ring_often)
    assert counted.calls == 2


async def test_on_the_loop_a_ring_does_not_go_through_it(monkeypatch: pytest.MonkeyPatch) -> None:
    bell, counted = Bell(), Counted(monkeypatch)
    wait = asyncio.create_task(bell.wait())
    await turns(2)
    bell.ring()
    await wait
    bell.ring()

    assert counted.calls == 0
    assert bell.on_loop
    assert not await in_thread(lambda: bell.on_loop)


async def test_what_threads_put_is_all_seen_by_who_looks_before_each_wait() -> None:
    bell, items, seen = Bell(), deque[int](), list[int]()

    def put() -> None:
        for number in range(2_000):
            items.append(number)
            bell.ring()

    putting = [asyncio.create_task(in_thread(put)) for _ in range(4)]
    while len(seen) < 8_000:
        while not items:
            await bell.wait()
        while items:
            seen.append(items.popleft())
    await asyncio.gather(*putting)

    assert sorted(seen) == sorted(list(range(2_000)) * 4)


async def test_threads_that_wait_for_room_fill_no_more_than_there_is() -> None:
    """A buffer of three, filled by threads that wait for room and emptied on the loop."""
    filled, room, lock = Bell(), Bell(), threading.Lock()
    items, seen, most = deque[int](), list[int](), 0

    def put(number: int) -> bool:
        with lock:
            if len(items) >= 3:
                return False
            items.append(number)
        filled.ring()
        return True

    def put_all() -> None:
        for number in range(200):
            assert room.wait_in_thread(lambda number=number: put(number))  # type: ignore[misc]

    putting = [asyncio.create_task(in_thread(put_all)) for _ in range(4)]
    while len(seen) < 800:
        while not items:
            await filled.wait()
        most = max(most, len(items))
        seen.append(items.popleft())
        room.ring()
    await asyncio.gather(*putting)

    assert most <= 3
    assert sorted(seen) == sorted(list(range(200)) * 4)


async def test_a_thread_that_finds_what_it_waits_for_does_not_wait() -> None:
    bell = Bell()

    assert await in_thread(lambda: bell.wait_in_thread(lambda: True))


async def test_a_thread_rings_for_another() -> None:
    bell, changed, waiting = Bell(), threading.Event(), threading.Event()

    def ready() -> bool:
        waiting.set()
        return changed.is_set()

    waits = asyncio.create_task(in_thread(lambda: bell.wait_in_thread(ready)))

    def change() -> None:
        waiting.wait(30)
        changed.set()
        bell.ring()

    await in_thread(change)

    assert await waits


async def test_who_waits_in_a_thread_is_woken_though_the_loop_was_told_already() -> None:
    bell, changed, waiting = Bell(), threading.Event(), threading.Event()

    def ready() -> bool:
        waiting.set()
        return changed.is_set()

    bell.ring()  # nobody waits on the loop, so that this is remembered
    waits = asyncio.create_task(in_thread(lambda: bell.wait_in_thread(ready)))
    await in_thread(lambda: waiting.wait(30))
    changed.set()
    bell.ring()

    assert await waits


async def test_a_ring_just_before_a_thread_begins_to_wait_is_not_lost() -> None:
    bell, asked = Bell(), 0

    def ready() -> bool:
        nonlocal asked
        asked += 1
        if asked == 1:
            bell.ring()  # as another thread might, when this one has looked
        return asked > 1

    assert await in_thread(lambda: bell.wait_in_thread(ready))
    assert asked == 2


async def test_in_the_thread_of_its_loop_nobody_blocks() -> None:
    bell = Bell()

    with pytest.raises(RuntimeError, match="Await `wait` there"):
        bell.wait_in_thread(lambda: True)


def test_a_thread_stops_waiting_when_the_loop_has_stopped_and_not_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bell_module, "LOOK_SECONDS", 0.01)
    looks = threading.Semaphore(0)

    async def main(executor: ThreadPoolExecutor) -> tuple[Bell, Any]:
        loop = asyncio.get_running_loop()
        is_running = loop.is_running

        def look() -> bool:
            looks.release()
            return is_running()

        monkeypatch.setattr(loop, "is_running", look)
        bell = Bell()
        waits = executor.submit(bell.wait_in_thread, lambda: False)
        for _ in range(3):
            await in_thread(looks.acquire)
        assert not waits.done()
        return bell, waits

    with ThreadPoolExecutor() as executor:
        bell, waits = asyncio.run(main(executor))
        assert waits.result(30) is False

    bell.ring()  # on a loop that is closed, for nobody
