"""One crash: a process is killed, its traces are read, and a second process continues the run."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import psycopg
from psycopg.rows import dict_row

from perdure.service.recovery import Recovered, recover
from perdure_checkpointers.postgres import PostgresSaver
from tests.faults.workload import BODIES, NAME, Log, build

ROOT = Path(__file__).parents[2]
KILLED = -9


@dataclass(kw_only=True)
class Crash:
    """The history of a thread, from the first run to the end of the recovery.

    Attributes:
        exit_code: the exit code of the killed process.
        before, after: the bodies of the second run that began before the kill and after it.
        stored: the bodies whose results were stored when the process was dead, as rows of `task_writes` or
            by the checkpoint of their superstep.
        recovered: the runs that `recover` has continued.
        values: the state in the end.
        run: the row of the last run.
    """

    exit_code: int
    before: Counter[str]
    stored: set[str]
    recovered: list[Recovered]
    after: Counter[str]
    values: dict[str, Any]
    run: dict[str, Any] | None
    problems: list[str] = field(default_factory=list)


async def child(url: str, thread: str, durability: str, log: Path, *where: str) -> int:
    """Run the workload in a process of its own, and wait until that ends."""
    command = [sys.executable, "-m", "tests.faults.workload", url, thread, durability, str(log), *where]
    process = await anyio.run_process(command, cwd=ROOT, check=False)
    assert process.returncode is not None
    if process.returncode not in (0, KILLED):
        raise AssertionError(f"the workload failed by itself:\n{process.stderr.decode()}")
    return process.returncode


async def crash(url: str, log: Path, durability: str, *where: str) -> Crash:
    """Kill the second run at a point, then recover what it left."""
    thread = "t"
    exit_code = await child(url, thread, durability, log, *where)
    before = _bodies(log)
    stored = await stored_bodies(url, thread)
    await expire(url, thread)
    async with PostgresSaver.from_conn_string(url) as saver:
        graph = build(saver, Log(str(log)))
        recovered = await recover(graph)
        snapshot = await graph.aget_state({"configurable": {"thread_id": thread}})
        leftover = await saver.aorphans(graph=NAME)
    result = Crash(
        exit_code=exit_code,
        before=before,
        stored=stored,
        recovered=recovered,
        after=_bodies(log) - before,
        values=snapshot.values,
        run=await last_run(url, thread),
    )
    if leftover or snapshot.next:
        result.problems.append(f"left over: {leftover}, still to run: {snapshot.next}")
    return result


def _bodies(log: Path) -> Counter[str]:
    lines = (line.split(" ", 1) for line in log.read_text().splitlines())
    return Counter(body for run, body in lines if run == "2")


async def stored_bodies(url: str, thread: str) -> set[str]:
    """Return the bodies of the second run whose results are stored, from their writes to `found`."""
    query = """
        SELECT convert_from(payload, 'utf8') AS payload FROM perdure.task_writes
        WHERE thread_id = %s AND channel IN ('found', 'ranked')
    """
    async with await psycopg.AsyncConnection.connect(url) as connection:
        rows = await (await connection.execute(query, (thread,))).fetchall()
    text = "\n".join(payload for (payload,) in rows)
    stored = {body for body in BODIES if f'"2:{body}"' in text}
    # The ranking names bodies of both runs; only its own task writes to `ranked` with run 2's items.
    return stored | ({"rank"} if any('"2:slow"' in p and '"1:slow"' in p for (p,) in rows) else set())


async def last_run(url: str, thread: str) -> dict[str, Any] | None:
    query = (
        "SELECT status, attempt, error FROM perdure.runs WHERE thread_id = %s ORDER BY run_id DESC LIMIT 1"
    )
    async with await psycopg.AsyncConnection.connect(url, row_factory=dict_row) as connection:
        return await (await connection.execute(query, (thread,))).fetchone()


async def expire(url: str, thread: str) -> None:
    """Let time pass until the lease of a dead process has run out."""
    query = (
        "UPDATE perdure.threads SET lease_expires = clock_timestamp() - interval '1 s' WHERE thread_id = %s"
    )
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(query, (thread,))
