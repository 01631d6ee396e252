"""The in-process saver keeps the contract of savers."""

from __future__ import annotations

import pytest

from perdure.checkpoint.memory import InMemorySaver
from perdure.testing.clock import FakeClock
from perdure.testing.conformance import CHECKS, Check, Subject


@pytest.mark.parametrize("check", CHECKS, ids=str)
async def test_in_memory_saver(check: Check) -> None:
    clock = FakeClock()
    saver = InMemorySaver(clock=clock)

    async def expire(thread_id: str) -> None:
        clock.advance(saver.lease_seconds)

    await check(Subject(saver=saver, expire=expire))
