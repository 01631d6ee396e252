"""The sweeper's jobs come at their intervals, each on its own."""

from __future__ import annotations

import logging

import anyio
import pytest

from perdure.service.sweeper import Sweeper
from perdure.testing.clock import FakeClock


async def let_it_happen() -> None:
    for _ in range(10):
        await anyio.lowlevel.checkpoint()


async def test_a_job_runs_at_once_and_then_about_every_so_often() -> None:
    clock, ran = FakeClock(), 0

    async def job() -> None:
        nonlocal ran
        ran += 1

    sweeper = Sweeper(clock)
    sweeper.register("job", job, every=10)
    async with anyio.create_task_group() as group:
        group.start_soon(sweeper.run)
        await let_it_happen()
        assert ran == 1
        for rounds in (2, 3):
            clock.advance(8.9)
            await let_it_happen()
            assert ran == rounds - 1
            clock.advance(2.2)
            await let_it_happen()
            assert ran == rounds
        group.cancel_scope.cancel()


async def test_a_job_that_fails_is_logged_and_comes_again(caplog: pytest.LogCaptureFixture) -> None:
    clock, ran = FakeClock(), 0

    async def job() -> None:
        nonlocal ran
        ran += 1
        raise ValueError("not today")

    sweeper = Sweeper(clock)
    sweeper.register("shaky", job, every=1)
    with caplog.at_level(logging.ERROR, "perdure"):
        async with anyio.create_task_group() as group:
            group.start_soon(sweeper.run)
            await let_it_happen()
            clock.advance(1.2)
            await let_it_happen()
            group.cancel_scope.cancel()
    assert ran == 2
    assert "'shaky'" in caplog.text
    assert "not today" in caplog.text


async def test_two_jobs_cannot_have_one_name() -> None:
    sweeper = Sweeper()
    sweeper.register("job", let_it_happen, every=1)
    with pytest.raises(ValueError, match="'job' is registered already"):
        sweeper.register("job", let_it_happen, every=1)
