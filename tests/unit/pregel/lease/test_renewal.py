"""Renewal: a run keeps its claim, and stops before the store may give its thread to another."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from perdure.checkpoint.base import Commit, Fence
from perdure.errors import SaverUnavailableError, StaleRunError
from perdure.pregel.lease.commit_line import CommitLine
from perdure.pregel.lease.renewal import hold, renew
from perdure.pregel.lease.session import Wake
from perdure.testing.clock import FakeClock
from tests.unit.pregel.graphs import Gate, chain, thread
from tests.unit.pregel.savers import WatchedSaver

FENCE = Fence(thread_id="t", run_id="run", epoch=1)


async def pass_time(clock: FakeClock, seconds: int) -> None:
    """Let seconds pass one by one, with everything that they cause."""
    for _ in range(seconds):
        await settle()
        clock.advance(1)
    await settle()


async def settle() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


class Held:
    """A run whose node waits, on a clock that the test moves."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.saver = WatchedSaver(self.clock)
        self.gate = Gate({"log": ["gate"]})
        graph = chain(["gate"], {"gate": self.gate}).compile(checkpointer=self.saver, clock=self.clock)
        self.run = asyncio.create_task(graph.ainvoke({}, thread()))


async def test_a_claim_is_renewed_for_as_long_as_the_run_lasts() -> None:
    held = Held()
    await held.gate.entered.wait()
    await pass_time(held.clock, 120)
    assert held.saver.renewals == 12
    assert await held.saver.aorphans() == []
    held.gate.open.set()

    assert await held.run == {"log": ["gate"]}
    await pass_time(held.clock, 60)
    assert held.saver.renewals == 12


async def test_a_run_that_cannot_renew_for_twenty_seconds_stops_itself() -> None:
    held = Held()
    await held.gate.entered.wait()
    held.saver.renew_error = SaverUnavailableError("partitioned")
    await pass_time(held.clock, 19)
    assert not held.run.done()
    await pass_time(held.clock, 2)

    with pytest.raises(
        StaleRunError, match=r"Run .* gave up thread 't': .* renewed for 20 seconds"
    ) as raised:
        await held.run
    assert str(raised.value.__cause__) == "partitioned"
    assert held.gate.cancelled == 1
    assert held.saver.renewals > 5, "it tries again and again until then"


async def test_a_run_that_renews_in_time_goes_on_and_its_deadline_is_moved() -> None:
    held = Held()
    await held.gate.entered.wait()
    for _ in range(5):
        held.saver.renew_error = SaverUnavailableError("a hiccup")
        await pass_time(held.clock, 15)
        held.saver.renew_error = None
        await pass_time(held.clock, 12)
    held.gate.open.set()

    assert await held.run == {"log": ["gate"]}


async def test_a_run_whose_claim_is_lost_stops_at_once() -> None:
    held = Held()
    await held.gate.entered.wait()
    held.saver.renew_error = StaleRunError("taken over")
    await pass_time(held.clock, 10)

    with pytest.raises(StaleRunError, match="taken over"):
        await held.run
    assert held.gate.cancelled == 1
    assert held.saver.renewals == 1


async def test_a_renewal_that_comes_after_the_end_was_stored_does_not_spoil_the_result() -> None:
    class Slow(WatchedSaver):
        async def acommit(self, commit: Commit) -> None:
            await super().acommit(commit)
            if commit.end is not None:
                await pass_time(clock, 10)  # the answer travels that long

    clock = FakeClock()
    saver = Slow(clock)
    graph = chain(["a"]).compile(checkpointer=saver, clock=clock)

    assert await graph.ainvoke({}, thread()) == {"log": ["a"]}
    assert saver.renewals == 1


async def test_what_a_stale_run_had_finished_is_refused_and_its_error_is_that_it_is_stale() -> None:
    clock = FakeClock()
    saver, gate = WatchedSaver(clock), Gate({"log": ["late"]})
    graph = chain(["gate"], {"gate": gate}).compile(checkpointer=saver, clock=clock)
    first = asyncio.create_task(graph.ainvoke({"log": ["one"]}, thread()))
    await gate.entered.wait()
    await settle()
    saver.renew_error = SaverUnavailableError("frozen")
    clock.advance(31)
    [orphan] = await saver.aorphans()
    taken = chain(["gate"]).compile(checkpointer=saver, clock=clock)
    assert (await taken.acontinue(orphan))["log"] == ["one", "gate"]
    gate.open.set()

    with pytest.raises(StaleRunError):
        await first
    assert (await taken.aget_state(thread())).values["log"] == ["one", "gate"]


async def test_a_renewal_that_hangs_counts_as_one_that_failed() -> None:
    class Hangs(WatchedSaver):
        async def arenew(self, fence: Fence) -> None:
            clock.advance(self.stop_seconds)  # and so its own deadline of real time does not matter
            raise TimeoutError

    clock = FakeClock()
    renewal = asyncio.create_task(renew(Hangs(clock), FENCE, clock, CommitLine(WatchedSaver())))
    await pass_time(clock, 31)

    with pytest.raises(StaleRunError) as raised:
        await renewal
    assert isinstance(raised.value.__cause__, TimeoutError)


async def test_the_deadline_counts_from_before_the_last_successful_renewal_was_sent() -> None:
    class Slow(WatchedSaver):
        async def arenew(self, fence: Fence) -> None:
            self.renewals += 1
            if self.renewals == 1:
                clock.advance(8)  # the answer takes eight seconds
                return
            raise SaverUnavailableError("gone")

    clock = FakeClock()
    renewal = asyncio.create_task(renew(Slow(clock), FENCE, clock, CommitLine(WatchedSaver())))
    await pass_time(clock, 10)  # sent at 10, answered at 18
    await pass_time(clock, 11)
    assert not renewal.done()
    await pass_time(clock, 2)  # 10 + 20 is over

    with pytest.raises(StaleRunError):
        await renewal
    assert clock.monotonic() <= 32


# hold


async def forever() -> None:
    await anyio.sleep_forever()


async def test_services_end_with_the_body() -> None:
    cancelled: list[str] = []

    async def service() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.append("service")

    async def body() -> int:
        await anyio.lowlevel.checkpoint()
        return 5

    assert await hold(body, service, service) == 5
    assert cancelled == ["service", "service"]


async def test_the_bodys_error_is_raised_as_itself() -> None:
    error = ValueError("boom")

    async def body() -> None:
        raise error

    with pytest.raises(ValueError, match="boom") as raised:
        await hold(body, forever)
    assert raised.value is error


async def test_a_services_error_stops_the_body_and_is_raised() -> None:
    stopped: list[Any] = []

    async def body() -> None:
        try:
            await anyio.sleep_forever()
        except BaseException as error:
            stopped.append(type(error))
            raise

    async def service() -> None:
        raise StaleRunError("lost")

    with pytest.raises(StaleRunError, match="lost"):
        await hold(body, service)
    assert stopped == [asyncio.CancelledError]


async def test_a_body_that_fails_while_a_service_stops_it_does_not_hide_why() -> None:
    async def body() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise ValueError("in clean-up")

    async def service() -> None:
        raise StaleRunError("lost")

    with pytest.raises(StaleRunError, match="lost"):
        await hold(body, service)


async def test_a_bell_that_was_hushed_gives_no_reason_to_send() -> None:
    wake = Wake()
    heard = []
    for ringing, hushed in (("a", "a"), ("ab", "a"), ("a", ""), ("ab", "ab"), ("", "a")):
        for who in ringing or [None]:
            wake.ring(who)
        for who in hushed:
            wake.hush(who)
        heard.append(await wake.heard())

    assert heard == [False, True, True, False, True]
