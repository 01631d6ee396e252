"""Stored outcomes: a task is finished, or its error handler goes on, or it runs again."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.checkpoint.base import PendingWrite
from perdure.constants import ERROR, ERROR_SOURCE, NO_WRITES, PULL
from perdure.errors import StoredError
from perdure.pregel.plan.plan import Policies
from perdure.pregel.run.restoring import restored
from perdure.pregel.step.namespace import ROOT_NAMESPACE
from perdure.pregel.step.outcome import Failed, Finished, still_to_run
from perdure.pregel.step.task import Superstep, Task
from perdure.pregel.work.handlers import handler_of, handler_task
from tests.unit.pregel.graphs import fan, with_policies


async def handles(state: Any, error: Any) -> Any:
    return {"log": ["handler"]}


PLAN = with_policies(fan("abc").compile(), {"a": Policies(handler="handler")}, {"handler": handles}).plan
SUPERSTEP = Superstep("c1", ROOT_NAMESPACE, 1, 25, resumed=True)
A, B, C = (Task(PLAN.nodes[name], (PULL, name), (), {"x": 1}, SUPERSTEP) for name in "abc")


def failed(task: Task, *, handled: bool) -> list[PendingWrite]:
    writes: list[PendingWrite] = [(task.id, ERROR, "ValueError('boom')")]
    return [*writes, (task.id, ERROR_SOURCE, task.name)] if handled else writes


def handler() -> Task:
    """Make the task that the handler of node `a` had in the process that is gone."""
    spec = handler_of(PLAN, A)
    assert spec is not None
    return handler_task(spec, A, ValueError("boom"), A.input)


def test_a_task_whose_writes_are_stored_has_finished() -> None:
    [outcome] = restored(PLAN, [A, B], [(B.id, "log", ["b"]), (B.id, "x", 2)])

    assert outcome == Finished(B, [("log", ["b"]), ("x", 2)], 2, restored=True)


def test_a_task_that_wrote_nothing_has_finished_too() -> None:
    assert restored(PLAN, [A], [(A.id, NO_WRITES, None)]) == [Finished(A, [], 0, restored=True)]


def test_a_task_that_only_failed_runs_again() -> None:
    outcomes = restored(PLAN, [A, B], failed(B, handled=False))

    assert outcomes == []
    assert still_to_run([A, B], outcomes) == [A, B]


def test_in_place_of_a_task_whose_handler_took_over_the_handler_goes_on() -> None:
    outcomes = restored(PLAN, [A, B], failed(A, handled=True))

    [outcome] = outcomes
    assert isinstance(outcome, Failed)
    assert outcome.restored
    assert outcome.handler is not None
    assert outcome.handler.id == handler().id, "so that what it has stored is found again"
    assert outcome.handler.input == A.input
    assert outcome.handler.handles is not None
    assert outcome.handler.handles.node == "a"
    assert isinstance(outcome.handler.handles.error, StoredError)
    assert str(outcome.handler.handles.error) == "ValueError('boom')"
    assert still_to_run([A, B], outcomes) == [outcome.handler, B]


def test_a_handler_that_has_finished_does_not_run_again() -> None:
    stored = [*failed(A, handled=True), (handler().id, "log", ["handled"])]
    outcomes = restored(PLAN, [A, B], stored)

    failure, finished = outcomes
    assert isinstance(failure, Failed)
    assert finished == Finished(failure.handler, [("log", ["handled"])], 1, restored=True)  # type: ignore[arg-type]
    assert still_to_run([A, B], outcomes) == [B]


def test_a_node_that_has_lost_its_handler_runs_again() -> None:
    without = fan("abc").compile().plan
    tasks = [Task(without.nodes["a"], (PULL, "a"), (), None, SUPERSTEP)]

    assert restored(without, tasks, failed(tasks[0], handled=True)) == []


@pytest.mark.parametrize("order", [1, -1])
def test_outcomes_come_in_the_order_of_the_tasks_whatever_was_stored_first(order: int) -> None:
    stored = [(C.id, "log", ["c"]), *failed(A, handled=True), (B.id, "log", ["b"])][::order]

    assert [outcome.task for outcome in restored(PLAN, [A, B, C], stored)] == [A, B, C]
