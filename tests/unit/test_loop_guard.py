"""The guard in conftest.py, which holds every other test to not blocking an event loop."""

from __future__ import annotations

import time
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from blockbuster import BlockingError
from pydantic import BaseModel


async def test_sleeping_in_the_loop_is_refused() -> None:
    with pytest.raises(BlockingError, match=r"time\.sleep"):
        time.sleep(0)  # noqa: ASYNC251


async def test_reading_a_file_in_the_loop_is_refused() -> None:
    with pytest.raises(BlockingError):
        Path(__file__).read_text()  # noqa: ASYNC240


def test_a_loop_that_the_test_itself_runs_is_guarded() -> None:
    async def sleep() -> None:
        time.sleep(0)  # noqa: ASYNC251

    with pytest.raises(BlockingError):
        anyio.run(sleep)


async def test_worker_threads_may_block() -> None:
    await anyio.to_thread.run_sync(time.sleep, 0)


def test_code_without_a_loop_may_block() -> None:
    time.sleep(0)


async def test_a_model_may_be_defined_in_the_loop() -> None:
    class Model(BaseModel):
        number: int

    assert Model(number=1).number == 1
