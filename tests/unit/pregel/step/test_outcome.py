"""Outcomes as values: what a superstep comes to does not depend on the order in which its tasks end."""

from __future__ import annotations

import copy
import operator
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.constants import PULL, START, TASKS
from perdure.data import Command, Send
from perdure.errors import GraphBubbleUp, InvalidUpdateError, ParentCommand
from perdure.graph.state import StateGraph
from perdure.pregel.plan.plan import Plan
from perdure.pregel.step.apply import apply
from perdure.pregel.step.namespace import ROOT_NAMESPACE
from perdure.pregel.step.outcome import (
    Failed,
    Finished,
    Left,
    Outcome,
    Stopped,
    Waiting,
    raised_by,
    still_to_run,
)
from perdure.pregel.step.prepare import prepare
from perdure.pregel.step.state import ThreadState
from perdure.pregel.step.task import Superstep, Task, Writes
from perdure.pregel.work.handlers import handler_task
from tests.unit.pregel.graphs import logs

NODES = ("a", "b", "n10", "n9")


class State(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    last: int


def graph_of_all_kinds() -> StateGraph:
    """Make a graph with joins, a deferred node, and edges from everywhere."""
    builder = StateGraph(State)
    for name in NODES:
        builder.add_node(name, logs(name)).add_edge(START, name)
    builder.add_node("joined", logs("joined")).add_edge(["a", "b"], "joined")
    return builder.add_node("late", logs("late"), defer=True).add_edge(["n9", "n10"], "late")


PLAN = graph_of_all_kinds().compile().plan
JOINS = {"a": "join:a+b:joined", "b": "join:a+b:joined", "n9": "join:n9+n10:late", "n10": "join:n9+n10:late"}


class Deed(NamedTuple):
    """The deed of a task: how it ends, and what it writes."""

    handled: bool
    log: list[str]
    last: int | None
    leads: list[str]
    sends: list[int]


deeds = st.builds(
    Deed,
    handled=st.booleans(),
    log=st.lists(st.sampled_from("xyz"), max_size=2),
    last=st.one_of(st.none(), st.none(), st.none(), st.integers(0, 9)),
    leads=st.lists(st.sampled_from(NODES), max_size=2, unique=True),
    sends=st.lists(st.integers(0, 9), max_size=2),
)


def outcomes_of(task: Task, deed: Deed) -> list[Outcome]:
    """Return the outcome of a task, or of its error handler, as well."""
    writes: Writes = [("log", [f"{task.name}:{entry}"]) for entry in deed.log]
    if deed.last is not None:
        writes.append(("last", deed.last))
    writes += [(f"branch:to:{name}", None) for name in deed.leads]
    writes += [(TASKS, Send("n9", number)) for number in deed.sends]
    if task.name in JOINS:
        writes.append((JOINS[task.name], task.name))
    if not deed.handled:
        return [Finished(task, writes, len(writes))]
    error = ValueError("boom")
    handler = handler_task(PLAN.nodes["a"], task, error, task.input)
    return [Failed(task, error, handler), Finished(handler, writes, len(writes))]


def superstep(number: int) -> Superstep:
    return Superstep(f"c{number}", ROOT_NAMESPACE, number, 25)


class Replayed:
    """A thread whose supersteps are applied in an order of its own.

    Attributes:
        seen: everything that the supersteps came to.
    """

    def __init__(self, plan: Plan) -> None:
        self.state = ThreadState(plan)
        self.tasks = [Task(plan.nodes[START], (PULL, START), (START,), {}, superstep(0))]
        self.seen: list[Any] = []

    def go_on(self, outcomes: Sequence[Outcome], number: int) -> None:
        state = self.state
        try:
            changed, updated = apply(state, outcomes, f"c{number}")
        except InvalidUpdateError as error:
            changed, updated, self.tasks = set(), [], []
            self.seen.append([str(error), *error.__notes__])
        else:
            self.tasks = prepare(state.plan, state, updated, superstep(number))
        self.seen.append(copy.deepcopy((state.read(), state.versions, state.seen, state.raised)))
        self.seen.append((changed, updated, [(task.id, task.path, task.input) for task in self.tasks]))


@given(data=st.data())
def test_supersteps_come_to_the_same_in_whatever_order_their_tasks_ended(data: st.DataObject) -> None:
    first, second = Replayed(PLAN), Replayed(PLAN)
    done = [Deed(False, [], None, list(NODES), [1])]
    for number in range(1, data.draw(st.integers(2, 5))):
        ended: list[list[Outcome]] = [[], []]
        for index, task in enumerate(first.tasks):
            deed = done[0] if number == 1 else data.draw(deeds)
            ended[0] += outcomes_of(task, deed)
            ended[1] += outcomes_of(second.tasks[index], deed)
        first.go_on(ended[0], number)
        second.go_on(data.draw(st.permutations(ended[1])), number)

        assert first.seen == second.seen


def task(name: str = "a") -> Task:
    return Task(PLAN.nodes[name], (PULL, name), (), None, superstep(1))


def test_only_what_finished_has_written_something() -> None:
    error, left = ValueError(), ParentCommand(Command())
    others: list[Outcome] = [
        Failed(task(), error),
        Waiting(task(), GraphBubbleUp()),
        Left(task(), left),
        Stopped(task(), "sibling"),
    ]

    assert [outcome.writes for outcome in others] == [[], [], [], []]
    assert Finished(task(), [("log", [])], 1).writes == [("log", [])]


def test_what_stops_a_run_is_an_error_that_nobody_handles_a_signal_or_a_command() -> None:
    error, signal, command = ValueError(), GraphBubbleUp(), ParentCommand(Command())

    assert raised_by(Failed(task(), error)) is error
    assert raised_by(Waiting(task(), signal)) is signal
    assert raised_by(Left(task(), command)) is command
    for outcome in (
        Finished(task(), [], 0),
        Failed(task(), error, handler=task("b")),
        Stopped(task(), "caller"),
    ):
        assert raised_by(outcome) is None


def test_still_to_run_is_what_has_no_outcome_and_the_handler_of_what_failed() -> None:
    a, b, c, handler = task("a"), task("b"), task("n9"), task("n10")
    failed = Failed(a, ValueError(), handler)

    assert still_to_run([a, b, c], []) == [a, b, c]
    assert still_to_run([a, b, c], [Finished(b, [], 0)]) == [a, c]
    assert still_to_run([a, b], [failed]) == [handler, b]
    assert still_to_run([a, b], [failed, Finished(handler, [], 0)]) == [b]
    assert still_to_run([a, b], [failed, Failed(handler, ValueError()), Stopped(b, "sibling")]) == []


@pytest.mark.parametrize("name", NODES)
def test_a_task_is_what_it_is_and_not_what_it_looks_like(name: str) -> None:
    one, other = task(name), task(name)

    assert one == one
    assert one != other
    assert one.id == other.id
    assert {one: 1, other: 2}[one] == 1
