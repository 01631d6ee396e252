"""An error handler on a real Postgres: a process is killed around it, and another continues.

python -m tests.faults.test_error_handlers URL LOG DURABILITY POINT
"""

from __future__ import annotations

import operator
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypedDict, cast

import anyio
import psycopg
import pytest

from perdure import START, Command, Pregel, StateGraph
from perdure.checkpoint.base import BaseCheckpointSaver
from perdure.data import Durability, NodeError, RetryPolicy
from perdure.errors import StoredError
from perdure.faults import FaultPoint
from perdure.pregel.plan.plan import Calling, NodeSpec, Policies
from perdure.service.recovery import recover
from perdure.testing.faults import fault, kill_process
from perdure_checkpointers.postgres import PostgresSaver

ROOT = Path(__file__).parents[2]
HANDLER = "__error_handler__bad"
THREAD = {"configurable": {"thread_id": "t"}}
KEPT_EARLY: list[Durability] = ["sync", "async"]


class State(TypedDict):
    found: Annotated[list[str], operator.add]


@pytest.fixture
async def saver(database_url: str) -> AsyncIterator[PostgresSaver]:
    async with PostgresSaver.from_conn_string(database_url) as saver:
        yield saver


def build(saver: BaseCheckpointSaver, log: Path) -> Pregel:
    """Build a node that fails twice, its handler, a sibling, and the handler's destination."""

    def note(body: str) -> None:
        with log.open("a") as file:  # one line, which must survive this process
            file.write(body + "\n")

    async def bad(state: State) -> None:
        note("bad")
        raise ConnectionError("boom")

    async def good(state: State) -> dict[str, list[str]]:
        note("good")
        return {"found": ["good"]}

    async def handler(state: State, error: NodeError) -> Any:
        note(f"handler {type(error.error).__name__} {error.error}")
        return Command(update={"found": ["handled"]}, goto="after")

    async def after(state: State) -> dict[str, list[str]]:
        note("after")
        return {"found": ["after"]}

    builder = StateGraph(State).add_node("bad", bad).add_node("good", good).add_node("after", after)
    graph = builder.add_edge(START, "bad").add_edge(START, "good").compile(saver, name="policies")
    retry = RetryPolicy(initial_interval=0, jitter=False, max_attempts=2)
    nodes = dict(graph.plan.nodes)
    nodes["bad"] = replace(nodes["bad"], policies=Policies(retry=(retry,), handler=HANDLER))
    nodes[HANDLER] = NodeSpec(
        name=HANDLER, action=handler, calling=Calling.COROUTINE, triggers=(), injects=(("error", "error"),)
    )
    return Pregel.from_plan(replace(graph.plan, nodes=nodes), checkpointer=saver)


@pytest.mark.parametrize("durability", [*KEPT_EARLY, "exit"])
async def test_a_handler_takes_the_place_of_its_node(
    durability: Durability, saver: PostgresSaver, tmp_path: Path
) -> None:
    graph = build(saver, tmp_path / "log")
    result = await graph.ainvoke({}, THREAD, durability=durability)

    assert result == {"found": ["handled", "good", "after"]}
    bodies = (tmp_path / "log").read_text().splitlines()
    assert sorted(bodies) == ["after", "bad", "bad", "good", "handler ConnectionError boom"]
    assert (await graph.aget_state(THREAD)).values == result


async def _killed(url: str, log: Path, durability: Durability, point: str) -> None:
    command = [sys.executable, "-m", "tests.faults.test_error_handlers", url, str(log), durability, point]
    process = await anyio.run_process(command, cwd=ROOT, check=False)
    assert process.returncode == -9, process.stderr.decode()
    query = "UPDATE perdure.threads SET lease_expires = clock_timestamp() - interval '1 s'"
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute(query)


@pytest.mark.parametrize("durability", KEPT_EARLY)
@pytest.mark.parametrize("point", ["node.before", "node.after"])
async def test_killed_between_its_failure_and_its_handlers_end_the_node_is_not_run_again(
    point: str, durability: Durability, saver: PostgresSaver, database_url: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    await _killed(database_url, log, durability, point)
    graph = build(saver, log)
    stopped = await graph.aget_state(THREAD)
    before = log.read_text().splitlines()
    log.write_text("")
    [recovered] = await recover(graph)

    assert before.count("bad") == 2
    assert ("handler ConnectionError boom" in before) is (point == "node.after")
    failed = {task.name: task.error for task in stopped.tasks}
    assert failed["bad"] == "ConnectionError('boom')"
    assert HANDLER in stopped.next
    assert recovered.error is None
    assert recovered.output == {"found": ["handled", "good", "after"]}
    again = [body for body in log.read_text().splitlines() if body != "good"]
    assert again == [f"handler {StoredError.__name__} ConnectionError('boom')", "after"]


@pytest.mark.parametrize("point", ["writes.send"])
async def test_killed_before_its_failure_was_stored_the_node_is_run_again(
    point: str, saver: PostgresSaver, database_url: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    await _killed(database_url, log, "sync", point)
    log.write_text("")
    [recovered] = await recover(build(saver, log))

    assert recovered.output == {"found": ["handled", "good", "after"]}
    assert log.read_text().splitlines().count("bad") == 2


async def main(*arguments: str) -> None:
    """Run until the named point of the handler, or of its node's failure, and die there."""
    url, log, durability, point = cast("tuple[str, str, Durability, FaultPoint]", arguments)
    subject = HANDLER if point.startswith("node.") else None
    async with PostgresSaver.from_conn_string(url) as saver:
        with fault(point, kill_process, subject=subject):
            await build(saver, Path(log)).ainvoke({}, THREAD, durability=durability)


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
