"""The tasks of a superstep, their order and their ids are a function of the state."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.config import RunSettings
from perdure.constants import END, PULL, PUSH, START, TASKS
from perdure.data import Command, Send
from perdure.errors import MissingNodeError
from perdure.graph.state import StateGraph
from perdure.pregel.plan.plan import Plan
from perdure.pregel.step.apply import apply
from perdure.pregel.step.namespace import ROOT_NAMESPACE, Namespace
from perdure.pregel.step.outcome import Finished
from perdure.pregel.step.prepare import prepare
from perdure.pregel.step.state import ThreadState
from perdure.pregel.step.task import Superstep, Task
from perdure.pregel.work.running import RunningTask, Scope
from tests.unit.pregel.graphs import Action, Log, Runs, chain, fan, logs, returns

RUNS_TWICE = pytest.mark.filterwarnings("ignore:Node 'c' runs 2 times")


def superstep(checkpoint_id: str = "c1", namespace: str = "", step: int = 0) -> Superstep:
    return Superstep(checkpoint_id, Namespace(namespace), step, 25)


def after(plan: Plan, *writes: tuple[str, Any]) -> tuple[ThreadState, list[str]]:
    """Return the state after these writes of START, and the updated channels."""
    state = ThreadState(plan)
    start = Task(plan.nodes[START], (PULL, START), (START,), {}, superstep())
    return state, apply(state, [Finished(start, list(writes), len(writes))], "c1").updated


def to(*names: str) -> list[tuple[str, Any]]:
    return [(f"branch:to:{name}", None) for name in names]


def test_sends_come_first_in_the_order_of_sending_then_nodes_by_name() -> None:
    plan = fan(["n2", "n10", "n1"]).compile().plan
    state, updated = after(plan, *to("n2", "n10", "n1"), (TASKS, Send("n2", 5)), (TASKS, Send("n1", [6])))

    tasks = prepare(plan, state, updated, superstep())

    assert [task.path for task in tasks] == [
        *((PUSH, 0), (PUSH, 1)),
        *((PULL, "n1"), (PULL, "n10"), (PULL, "n2")),
    ]
    assert [task.name for task in tasks] == ["n2", "n1", "n1", "n10", "n2"]
    assert [task.input for task in tasks] == [5, [6], {"log": []}, {"log": []}, {"log": []}]


@RUNS_TWICE
def test_a_state_of_which_nothing_is_known_gives_the_same_tasks_with_the_same_ids() -> None:
    plan = fan(["b", "a", "c"]).add_edge(["a", "b"], "c").compile().plan
    state, updated = after(
        plan, *to("a", "c"), ("join:a+b:c", "a"), ("join:a+b:c", "b"), (TASKS, Send("b", 1))
    )

    known = prepare(plan, state, updated, superstep())
    unknown = prepare(plan, state, None, superstep())

    assert {task.id: task.triggers for task in known} == {task.id: task.triggers for task in unknown}
    assert known[-1].triggers == ("branch:to:c", "join:a+b:c")


def test_ids_differ_by_checkpoint_namespace_step_node_and_number() -> None:
    plan = fan(["a", "b"]).compile().plan
    state, updated = after(plan, *to("a", "b"), (TASKS, Send("a", 1)), (TASKS, Send("a", 1)))
    ids = [
        task.id
        for step in (superstep(), superstep("c2"), superstep(namespace="n"), superstep(step=1))
        for task in prepare(plan, state, updated, step)
    ]

    assert len(set(ids)) == len(ids) == 16


def test_a_node_that_has_seen_its_trigger_is_not_started_by_a_full_scan() -> None:
    plan = chain(["a", "b"]).compile().plan
    state, _ = after(plan, *to("a"))
    [task] = prepare(plan, state, None, superstep())
    apply(state, [Finished(task, [("x", 1)], 1)], "c2")

    assert prepare(plan, state, None, superstep()) == []


def test_a_state_without_any_version_starts_nothing() -> None:
    plan = chain(["a"]).compile().plan

    assert prepare(plan, ThreadState(plan), None, superstep()) == []


def test_a_stored_send_to_a_node_that_is_gone_names_it_and_those_that_exist() -> None:
    plan = fan(["a", "b"]).compile().plan
    state, updated = after(plan, (TASKS, Send("gone", 1)))

    with pytest.raises(
        MissingNodeError, match=r"node 'gone', which graph 'LangGraph' .*Its nodes are: a, b\."
    ):
        prepare(plan, state, updated, superstep())


def test_a_child_graph_has_a_namespace_of_its_task_and_a_second_one_a_number() -> None:
    plan = fan(["a"]).compile().plan
    state, updated = after(plan, *to("a"))
    [task] = prepare(plan, state, updated, superstep())
    [nested] = prepare(plan, state, updated, superstep(namespace="p:1"))

    scope = Scope(settings=RunSettings(), random=lambda: 0.0)
    running, below = RunningTask(task, scope), RunningTask(nested, scope)
    children = [running.child_namespace() for _ in range(3)]
    assert [child.text for child in children] == [f"a:{task.id}", f"a:{task.id}|1", f"a:{task.id}|2"]
    assert [child.parent for child in children] == [ROOT_NAMESPACE] * 3
    assert below.child_namespace() == Namespace(f"p:1|a:{nested.id}")


# What graphs see of it


async def ran(builder: StateGraph, given: dict[str, Any] | None = None) -> list[str]:
    log: list[str] = (await builder.compile().ainvoke(given or {}))["log"]
    return log


async def test_a_join_waits_for_starts_that_end_in_different_supersteps() -> None:
    builder = chain(["a", "b"]).add_node("c", logs("c")).add_edge(START, "c")
    builder.add_node("join", logs("join")).add_edge(["b", "c"], "join")

    assert await ran(builder) == ["a", "c", "b", "join"]


async def test_a_join_fires_again_only_when_all_have_ended_again() -> None:
    rounds = 0

    async def again(state: Log) -> Any:
        nonlocal rounds
        rounds += 1
        return Command(goto=["a", "b"] if rounds == 1 else ["a"], update={"log": ["again"]})

    builder = fan(["a", "b"]).add_node("join", again).add_edge(["a", "b"], "join")

    assert await ran(builder) == ["a", "b", "again", "a", "b", "again", "a"]


async def test_a_join_of_one_start_fires_each_time() -> None:
    builder = chain(["a"]).add_node("join", logs("join")).add_edge(["a"], "join")

    assert await ran(builder) == ["a", "join"]


async def test_a_join_counts_a_start_that_ended_twice_once() -> None:
    builder = (
        chain(["a"], {"a": returns({"log": ["a"]})}).add_node("b", logs("b")).add_node("join", logs("join"))
    )
    builder.add_edge(["a", "b"], "join")
    builder.add_conditional_edges("a", lambda s: "b" if s["log"].count("a") == 2 else "a", ["a", "b"])

    assert await ran(builder) == ["a", "a", "b", "join"]


async def test_a_join_one_start_of_which_is_skipped_never_fires() -> None:
    builder = (
        chain(["a"]).add_node("b", logs("b")).add_node("join", logs("join")).add_edge(["a", "b"], "join")
    )

    assert await ran(builder) == ["a"]


async def test_a_join_to_the_end_is_allowed_and_does_nothing() -> None:
    assert await ran(fan(["a", "b"]).add_edge(["a", "b"], END)) == ["a", "b"]


async def test_two_plain_edges_of_one_length_start_a_node_once() -> None:
    builder = fan(["a", "b"]).add_node("c", logs("c")).add_edge("a", "c").add_edge("b", "c")

    assert await ran(builder) == ["a", "b", "c"]


@RUNS_TWICE
async def test_two_plain_edges_of_different_length_start_a_node_twice() -> None:
    builder = chain(["a", "b", "c"]).add_edge("a", "c")

    assert await ran(builder) == ["a", "b", "c", "c"]


async def test_a_node_and_sends_to_it_run_in_one_superstep() -> None:
    inputs: list[Any] = []

    async def sent(given: Any) -> Any:
        inputs.append(given)
        return {"log": ["b"]}

    sends: Any = [Send("b", 1), Send("b", {"x": 5}), Send("b", None)]
    builder = chain(["a"], {"a": returns(Command(goto=[*sends, "b"]))}).add_node("b", sent)

    assert await ran(builder) == ["b"] * 4
    assert inputs == [1, {"x": 5}, None, {"log": []}]


async def test_sends_are_run_once() -> None:
    runs = Runs()
    actions: dict[str, Action] = {"a": runs.counted("a", returns([Send("b", 1)]))}
    builder = chain(["a", "after"], actions).add_node("b", runs.counted("b")).add_edge("b", "after")
    await builder.compile().ainvoke({})

    assert runs.of == {"a": 1, "b": 1}
