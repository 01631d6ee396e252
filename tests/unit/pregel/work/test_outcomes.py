"""Running tasks: each task, and each error handler, comes to one outcome, whatever ends the superstep."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import pytest

from perdure.config import RunSettings
from perdure.constants import PULL
from perdure.data import Command
from perdure.errors import GraphBubbleUp, ParentCommand
from perdure.pregel.plan.plan import Policies
from perdure.pregel.step.namespace import ROOT_NAMESPACE
from perdure.pregel.step.outcome import Failed, Finished, Left, Outcome, Ran, Stopped, Waiting
from perdure.pregel.step.state import ThreadState
from perdure.pregel.step.task import Superstep, Task
from perdure.pregel.work.runner import Runner
from perdure.pregel.work.running import RunningTask, Scope
from perdure.testing.clock import FakeClock
from tests.unit.pregel.graphs import Action, fails, fan, logs, returns, settle, with_policies


class Signal(GraphBubbleUp):
    """As a node raises that waits."""


async def waits_for_ever(state: Any) -> None:
    await anyio.sleep_forever()


async def fails_later(state: Any) -> None:
    await settle(20)
    raise ValueError("later")


async def handles(state: Any, error: Any) -> Any:
    return {"log": ["handler"]}


async def fails_to_handle(state: Any, error: Any) -> Any:
    raise RuntimeError("handler")


class Noted:
    """An observer that notes the outcomes in the order in which it is told of them."""

    def __init__(self) -> None:
        self.started: list[Task] = []
        self.outcomes: list[Outcome] = []
        self.handled: list[Task] = []

    def tasks_start(self, tasks: Any) -> None:
        self.started += tasks

    def task_ended(self, outcome: Outcome, *, others_run: bool) -> None:
        self.outcomes.append(outcome)

    async def handler_begins(self, failed: Failed) -> None:
        assert failed in self.outcomes
        self.handled.append(failed.task)

    async def room(self) -> None:
        return


class Superstepped:
    """One superstep of the nodes that are given, of which some have error handlers."""

    def __init__(
        self, actions: Mapping[str, Action], handled: str = "", handler: Callable[..., Any] = handles
    ) -> None:
        policies = {name: Policies(handler="handler") for name in handled}
        plan = with_policies(fan(list(actions), actions).compile(), policies, {"handler": handler}).plan
        self.clock, self.observer = FakeClock(), Noted()
        self.tasks = [
            Task(plan.nodes[name], (PULL, name), (), {}, Superstep("c1", ROOT_NAMESPACE, 1, 25))
            for name in actions
        ]
        self._plan, self._state = plan, ThreadState(plan)

    async def run(self, **scope: Any) -> Ran:
        settings = RunSettings(max_concurrency=scope.pop("limit", None))
        offered = Scope(settings=settings, clock=self.clock, random=lambda: 0.0, **scope)
        ran = await Runner(self._plan, self._state, offered, self.observer).run_tasks(self.tasks)
        self.check(ran)
        return ran

    def check(self, ran: Ran) -> None:
        handlers = [
            each.handler for each in ran.outcomes if isinstance(each, Failed) and each.handler is not None
        ]
        assert sorted(each.task.name for each in ran.outcomes) == sorted(
            each.name for each in [*self.tasks, *handlers]
        )
        assert list(ran.outcomes) == self.observer.outcomes
        assert self.observer.started == self.tasks


def kinds(ran: Ran) -> dict[str, str]:
    return {outcome.task.name: type(outcome).__name__ for outcome in ran.outcomes}


async def test_tasks_that_return_have_finished() -> None:
    ran = await Superstepped({"a": logs("a"), "b": logs("b")}).run()

    assert (ran.finished, ran.cut_short) == (True, None)
    assert kinds(ran) == {"a": "Finished", "b": "Finished"}


@pytest.mark.parametrize("limit", [None, 2, 1])
async def test_a_failure_stops_the_siblings_that_run_and_those_that_have_not_begun(limit: int | None) -> None:
    step = Superstepped({"a": fails_later, "b": waits_for_ever, "c": waits_for_ever})
    ran = await step.run(limit=limit)

    assert not ran.finished
    assert kinds(ran) == {"a": "Failed", "b": "Stopped", "c": "Stopped"}
    assert [each.by for each in ran.outcomes if isinstance(each, Stopped)] == ["sibling", "sibling"]


async def test_a_sibling_is_stopped_although_a_handler_makes_as_many_outcomes_as_there_are_tasks() -> None:
    ran = await Superstepped({"a": fails(ValueError()), "b": fails_later, "c": waits_for_ever}, "a").run()

    assert kinds(ran) == {"a": "Failed", "handler": "Finished", "b": "Failed", "c": "Stopped"}


async def test_a_handled_failure_and_its_handler_are_two_outcomes_and_the_superstep_has_finished() -> None:
    step = Superstepped({"a": fails(ValueError("boom")), "b": logs("b")}, "a")
    ran = await step.run()
    [failed] = [each for each in ran.outcomes if isinstance(each, Failed)]

    assert ran.finished
    assert kinds(ran) == {"a": "Failed", "handler": "Finished", "b": "Finished"}
    assert failed.handler is not None
    assert failed.handler.handles is not None
    assert failed.handler.handles.error is failed.error
    assert step.observer.handled == [failed.task]


async def test_a_handler_that_fails_stops_the_others() -> None:
    step = Superstepped({"a": fails(ValueError("boom")), "b": waits_for_ever}, "a", fails_to_handle)
    ran = await step.run()

    assert not ran.finished
    assert kinds(ran) == {"a": "Failed", "handler": "Failed", "b": "Stopped"}


async def test_a_signal_is_a_wait_and_no_failure() -> None:
    signal = Signal()
    [only] = (await Superstepped({"a": fails(signal)}).run()).outcomes

    assert isinstance(only, Waiting)
    assert only.signal is signal


@pytest.mark.parametrize("group", [False, True], ids=["raised", "raised in a group"])
async def test_a_node_that_raises_a_command_for_itself_has_finished(group: bool) -> None:
    raised: BaseException = ParentCommand(Command(update={"x": 1}))
    if group:
        raised = BaseExceptionGroup("of a task group", [raised])
    [only] = (await Superstepped({"a": fails(raised)}).run()).outcomes

    assert isinstance(only, Finished)
    assert only.writes == [("x", 1)]


async def test_one_that_leaves_stops_nobody() -> None:
    step = Superstepped({"a": returns(Command(graph=Command.PARENT)), "b": logs("b"), "c": fails_later})
    above = RunningTask(step.tasks[0], Scope(settings=RunSettings(), random=lambda: 0.0))
    ran = await step.run(above=above)
    [left] = [each for each in ran.outcomes if isinstance(each, Left)]

    assert left.command.target is above
    assert kinds(ran) == {"a": "Left", "b": "Finished", "c": "Failed"}


@pytest.mark.parametrize("names", ["a", "ab"], ids=["width 1", "width 2"])
async def test_a_deadline_stops_what_has_not_ended(names: str) -> None:
    step = Superstepped({**dict.fromkeys(names, waits_for_ever), "z": logs("z")})
    running = asyncio.create_task(step.run(step_timeout=10))
    await settle()
    step.clock.advance(10)
    ran = await running

    assert isinstance(ran.cut_short, TimeoutError)
    assert kinds(ran) == {**dict.fromkeys(names, "Stopped"), "z": "Finished"}
    assert {each.by for each in ran.outcomes if isinstance(each, Stopped)} == {"deadline"}


@pytest.mark.parametrize("names", ["a", "ab"], ids=["width 1", "width 2"])
@pytest.mark.parametrize("limit", [None, 1], ids=["unbounded", "bounded"])
async def test_a_cancellation_stops_what_has_not_ended_and_is_returned(names: str, limit: int | None) -> None:
    step = Superstepped(dict.fromkeys(names, waits_for_ever))
    running = asyncio.create_task(step.run(limit=limit))
    await settle()
    running.cancel()
    ran = await running

    assert isinstance(ran.cut_short, asyncio.CancelledError)
    assert kinds(ran) == dict.fromkeys(names, "Stopped")
    assert {each.by for each in ran.outcomes if isinstance(each, Stopped)} == {"caller"}
