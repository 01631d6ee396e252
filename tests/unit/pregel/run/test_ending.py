"""The end of a superstep in which not all tasks finished: one exception, whatever they all came to."""

from __future__ import annotations

import asyncio
from itertools import permutations

import pytest

from perdure.constants import PULL
from perdure.data import Command
from perdure.errors import GraphBubbleUp, InvalidUpdateError, ParentCommand, failures_of
from perdure.pregel.run.ending import ending_of, recorded_end
from perdure.pregel.step.namespace import ROOT_NAMESPACE
from perdure.pregel.step.outcome import Failed, Finished, Left, Outcome, Ran, Stopped, Waiting
from perdure.pregel.step.task import Superstep, Task
from tests.unit.pregel.graphs import fan

PLAN = fan(["a", "b", "c", "d"]).compile().plan
SUPERSTEP = Superstep("c1", ROOT_NAMESPACE, 1, 25)


def task(name: str) -> Task:
    return Task(PLAN.nodes[name], (PULL, name), (), None, SUPERSTEP)


def left(name: str, target: object = None) -> Left:
    return Left(task(name), ParentCommand(Command(update={"x": name}), target=target))


def ending(*outcomes: Outcome, cut_short: BaseException | None = None) -> BaseException:
    return ending_of(Ran(outcomes, False, cut_short))


def test_the_commands_of_all_tasks_that_left_come_in_the_order_of_their_paths() -> None:
    around = object()
    outcomes: list[Outcome] = [
        left("a", around),
        left("b", around),
        left("c", around),
        Finished(task("d"), [], 0),
    ]
    for order in permutations(outcomes):
        end = ending(*order)

        assert isinstance(end, ParentCommand)
        assert end.target is around
        assert [command.update for command in end.command] == [{"x": "a"}, {"x": "b"}, {"x": "c"}]


def test_the_command_of_one_task_that_left_stays_what_it_is() -> None:
    only = left("a")

    assert ending(Finished(task("b"), [], 0), only) is only.command


def test_commands_for_different_graphs_are_an_error() -> None:
    end = ending(left("a", object()), left("b", object()))

    assert isinstance(end, InvalidUpdateError)


def test_an_error_wins_over_signals_and_commands_whatever_came_first() -> None:
    error = ValueError("boom")
    outcomes: list[Outcome] = [
        Failed(task("a"), error),
        left("b"),
        Waiting(task("c"), GraphBubbleUp()),
        Stopped(task("d"), "sibling"),
    ]
    for order in permutations(outcomes):
        assert ending(*order) is error


def test_of_several_errors_the_first_is_raised_with_the_others_attached() -> None:
    first, second = ValueError("first"), ValueError("second")
    handled = Failed(task("c"), ValueError("handled"), handler=task("d"))

    assert ending(handled, Failed(task("b"), first), Failed(task("a"), second)) is first
    assert failures_of(first) == (first, second)


@pytest.mark.parametrize("cut_short", [asyncio.CancelledError(), TimeoutError()])
def test_what_cut_a_superstep_short_wins_over_everything(cut_short: BaseException) -> None:
    outcomes = (Failed(task("a"), ValueError()), left("b"), Stopped(task("c"), "caller"))

    assert ending(*outcomes, cut_short=cut_short) is cut_short


def test_a_command_for_a_graph_around_is_recorded_as_a_success() -> None:
    assert recorded_end(ParentCommand(Command())).status == "success"
    assert recorded_end(ValueError("boom")).status == "error"
    assert recorded_end(asyncio.CancelledError()).status == "cancelled"
