"""Frozen writers: a process that was paused and presumed dead cannot write over its successor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from perdure.errors import ThreadBusyError
from perdure.service.recovery import recover
from perdure_checkpointers.postgres import PostgresSaver
from tests.faults.crash import ROOT, expire, last_run
from tests.faults.workload import Log, build

CONFIG = {"configurable": {"thread_id": "t"}}


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_every_write_of_a_thawed_process_is_refused(
    durability: str, database_url: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    command = [
        sys.executable,
        "-m",
        "tests.faults.workload",
        database_url,
        "t",
        durability,
        str(log),
        "freeze",
    ]
    async with await anyio.open_process(command, cwd=ROOT, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        with anyio.fail_after(20):
            assert (await process.stdout.receive()).strip() == b"frozen"
        os.kill(process.pid, signal.SIGSTOP)
        async with PostgresSaver.from_conn_string(database_url) as saver:
            graph = build(saver, Log(str(log)))
            with pytest.raises(ThreadBusyError, match=r"'t'.*since"):
                await graph.ainvoke({"run": 3}, CONFIG)
            await expire(database_url, "t")
            (recovered,) = await recover(graph)
            assert recovered.error is None
            finished = await graph.aget_state(CONFIG)
            os.kill(process.pid, signal.SIGCONT)
            with anyio.fail_after(50):
                complaint = b"".join([chunk async for chunk in process.stderr])
                assert await process.wait() != 0
            assert b"StaleRunError" in complaint
            assert await graph.aget_state(CONFIG) == finished
        assert await last_run(database_url, "t") == {"status": "success", "attempt": 2, "error": None}
