"""Callers that share sends: batches, order, failures, cancellation, and no cost for a caller alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel
import pytest

from perdure.aio.combiner import Combiner


class Mailbox:
    """An owner of a combiner: letters gather, and leave in batches.

    Attributes:
        batches: the letters of each send, in order; those of a send that failed or was cancelled too.
        senders: the name of the task behind each send.
        during_send: awaited within each send, before its letters count as sent.
    """

    def __init__(self) -> None:
        self.combiner = Combiner()
        self.batches: list[list[str]] = []
        self.senders: list[str | None] = []
        self.during_send: Callable[[], Awaitable[None]] = anyio.lowlevel.checkpoint
        self._gathered: list[str] = []
        self._sent: set[str] = set()

    async def post(self, letter: str) -> None:
        """Return when the letter is sent."""
        self._gathered.append(letter)
        await self.combiner.until(lambda: letter in self._sent, self._send)

    async def _send(self) -> None:
        batch = self._gathered.copy()
        self.batches.append(batch)
        self.senders.append(anyio.get_current_task().name)
        await self.during_send()
        self._sent.update(batch)
        del self._gathered[: len(batch)]

    def start(self, letter: str) -> asyncio.Task[None]:
        return asyncio.create_task(self.post(letter), name=letter)


class Gate:
    """Holds every send until it is opened."""

    def __init__(self, mailbox: Mailbox) -> None:
        self.reached = anyio.Event()
        self.opened = anyio.Event()
        mailbox.during_send = self._hold

    async def _hold(self) -> None:
        self.reached.set()
        await self.opened.wait()


async def settle(turns: int = 10) -> None:
    for _ in range(turns):
        await anyio.lowlevel.checkpoint()


async def held_mailbox(*waiting: str) -> tuple[Mailbox, Gate, asyncio.Task[None], list[asyncio.Task[None]]]:
    """Return a mailbox whose first letter is being sent, by the task returned, while others wait."""
    mailbox = Mailbox()
    gate = Gate(mailbox)
    sender = mailbox.start("first")
    await gate.reached.wait()
    waiters = [mailbox.start(letter) for letter in waiting]
    await settle()
    return mailbox, gate, sender, waiters


async def test_letters_that_gather_during_a_send_leave_together() -> None:
    mailbox, gate, sender, waiters = await held_mailbox("a", "b", "c")
    gate.opened.set()
    await asyncio.gather(sender, *waiters)

    assert mailbox.batches == [["first"], ["a", "b", "c"]]


async def test_letters_that_gather_before_the_first_send_leave_with_it() -> None:
    mailbox = Mailbox()
    async with anyio.create_task_group() as group:
        for letter in "abc":
            group.start_soon(mailbox.post, letter)

    # The first caller begins to send before the others have run at all.
    assert mailbox.batches == [["a"], ["b", "c"]]


async def test_the_caller_that_has_waited_longest_sends() -> None:
    mailbox, gate, sender, waiters = await held_mailbox("a", "b", "c")
    gate.opened.set()
    await asyncio.gather(sender, *waiters)

    assert mailbox.senders == ["first", "a"]


async def test_turns_are_taken_in_the_order_of_the_calls() -> None:
    combiner, order = Combiner(), list[int]()

    async def caller(number: int) -> None:
        async def send() -> None:
            order.append(number)
            await settle(3)

        await combiner.until(lambda: number in order, send)

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(caller, number)

    assert order == list(range(20))


async def test_a_caller_that_is_done_already_neither_waits_nor_sends() -> None:
    mailbox, gate, sender, _ = await held_mailbox()

    async def refuse() -> None:
        pytest.fail("there is nothing to send")

    with anyio.fail_after(5):
        await mailbox.combiner.until(lambda: True, refuse)
    assert mailbox.combiner.sending
    gate.opened.set()
    await sender


async def test_a_send_that_brings_a_caller_no_answer_is_followed_by_another() -> None:
    """As where a batch has a limit, and the caller's letter was not in it."""
    sends = 0

    async def send() -> None:
        nonlocal sends
        sends += 1

    await Combiner().until(lambda: sends == 3, send)
    assert sends == 3


async def test_a_caller_alone_is_not_sent_round_the_loop() -> None:
    mailbox = Mailbox()

    async def nothing() -> None:
        pass

    mailbox.during_send = nothing
    alone = mailbox.post("a")
    with pytest.raises(StopIteration):
        alone.send(None)  # a coroutine that yields to the loop returns here instead

    assert mailbox.batches == [["a"]]


async def test_a_caller_after_another_is_not_sent_round_the_loop_either() -> None:
    mailbox = Mailbox()
    await mailbox.post("before")

    async def nothing() -> None:
        pass

    mailbox.during_send = nothing
    with pytest.raises(StopIteration):
        mailbox.post("a").send(None)


async def test_it_is_sending_while_a_caller_has_the_turn() -> None:
    mailbox, gate, sender, _ = await held_mailbox()
    assert mailbox.combiner.sending
    gate.opened.set()
    await sender
    assert not mailbox.combiner.sending


async def test_waiting_for_turns_ends_after_those_of_the_callers_before() -> None:
    mailbox, gate, sender, waiters = await held_mailbox("a")
    idle = asyncio.create_task(mailbox.combiner.had_turns())
    await settle()
    assert not idle.done()
    gate.opened.set()
    await idle

    assert mailbox.batches == [["first"], ["a"]]
    await asyncio.gather(sender, *waiters)


# A send that fails


async def test_a_failure_is_raised_to_the_caller_that_sent_and_the_next_one_sends_again() -> None:
    mailbox, gate, sender, waiters = await held_mailbox("a", "b")
    failures = [OSError("gone")]

    async def fail_once() -> None:
        await gate.opened.wait()
        if failures:
            raise failures.pop()

    mailbox.during_send = fail_once
    gate.opened.set()
    results = await asyncio.gather(sender, *waiters, return_exceptions=True)

    assert [str(result) for result in results] == ["None", "gone", "None"]
    assert mailbox.senders == ["first", "a", "b"]
    assert mailbox.batches[1:] == [["a", "b"], ["a", "b"]]


async def test_when_every_send_fails_every_caller_is_told_and_nobody_waits() -> None:
    mailbox = Mailbox()

    async def fail() -> None:
        await anyio.lowlevel.checkpoint()
        raise OSError("gone")

    mailbox.during_send = fail
    callers = [mailbox.start(letter) for letter in "abc"]
    results = await asyncio.gather(*callers, return_exceptions=True)

    assert [type(result) for result in results] == [OSError] * 3
    assert not mailbox.combiner.sending


async def test_after_a_failure_the_turn_is_free() -> None:
    mailbox = Mailbox()

    async def fail() -> None:
        raise OSError("gone")

    mailbox.during_send = fail
    with pytest.raises(OSError, match="gone"):
        await mailbox.post("a")
    mailbox.during_send = anyio.lowlevel.checkpoint
    await mailbox.post("b")

    assert mailbox.batches == [["a"], ["a", "b"]]


# Cancellation


async def test_when_the_caller_that_sends_is_cancelled_the_next_one_sends() -> None:
    mailbox, gate, sender, waiters = await held_mailbox("a", "b")
    sender.cancel()
    gate.opened.set()
    results = await asyncio.gather(sender, *waiters, return_exceptions=True)

    assert [type(result) for result in results] == [asyncio.CancelledError, type(None), type(None)]
    assert mailbox.senders == ["first", "a"]
    assert mailbox.batches[1] == ["first", "a", "b"]


async def test_when_a_caller_that_waits_is_cancelled_the_others_go_on() -> None:
    mailbox, gate, sender, waiters = await held_mailbox("a", "b", "c")
    waiters[0].cancel()
    gate.opened.set()
    results = await asyncio.gather(sender, *waiters, return_exceptions=True)

    assert [type(result) for result in results[1:]] == [asyncio.CancelledError, type(None), type(None)]
    assert mailbox.senders == ["first", "b"]


async def test_a_scope_of_anyio_cancels_a_caller_that_waits() -> None:
    mailbox, gate, sender, _ = await held_mailbox()
    with anyio.move_on_after(0) as scope:
        await mailbox.post("a")
    assert scope.cancelled_caught
    gate.opened.set()
    await sender
    await mailbox.post("b")

    assert mailbox.batches == [["first"], ["a", "b"]]


async def test_a_caller_that_is_cancelled_just_as_it_gets_the_turn_passes_it_on() -> None:
    mailbox = Mailbox()
    gate = Gate(mailbox)

    async def send_then_cancel_next() -> None:
        await mailbox.post("first")
        waiters[0].cancel()  # the turn is handed to it, but it has not run since

    sender = asyncio.create_task(send_then_cancel_next(), name="first")
    await gate.reached.wait()
    waiters = [mailbox.start(letter) for letter in "ab"]
    await settle()
    gate.opened.set()
    with anyio.fail_after(5):
        results = await asyncio.gather(sender, *waiters, return_exceptions=True)

    assert [type(result) for result in results] == [type(None), asyncio.CancelledError, type(None)]
    assert mailbox.senders == ["first", "b"]


@pytest.mark.parametrize("turn", range(12))
@pytest.mark.parametrize("whose", range(4))
async def test_nobody_is_left_waiting_whoever_is_cancelled_and_when(whose: int, turn: int) -> None:
    mailbox = Mailbox()
    mailbox.during_send = lambda: settle(2)
    callers = [mailbox.start(letter) for letter in "abcd"]
    await settle(turn)
    callers[whose].cancel()
    with anyio.fail_after(5):
        results = await asyncio.gather(*callers, return_exceptions=True)

    others = [result for index, result in enumerate(results) if index != whose]
    assert others == [None] * 3
    assert not mailbox.combiner.sending
    await mailbox.post("later")
