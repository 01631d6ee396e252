"""A thread under all calls and all crashes, compared with the model.

`make sweep` runs many more and longer histories.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from perdure.checkpoint.base import Commit
from perdure.clock import IdSource
from perdure.constants import RESERVED_SLOTS
from perdure.data import Command, Durability, Send
from perdure.runtime import get_runtime
from perdure.service.recovery import recover
from perdure.testing.clock import FakeClock
from tests.unit.pregel.graphs import thread
from tests.unit.pregel.model import Outcome, Point, after, commanded, due, merged, outcome, started, trail
from tests.unit.pregel.modelled import build
from tests.unit.pregel.savers import WatchedSaver
from tests.unit.pregel.shapes import ENTRY, FUEL, Packet, Shape, name_of, shapes

SWEEPS = hypothesis.settings.get_current_profile_name() == "sweep"

pytestmark = [
    # Random graphs have every structure that compile() warns of.
    pytest.mark.filterwarnings("ignore::perdure.errors.GraphStructureWarning"),
    # To find the smallest history that fails takes longer than to find one.
    pytest.mark.timeout(7_200 if SWEEPS else 600),
]

SUFFIX = "8000-000000000000"
MODES: list[Durability] = ["sync", "async", "exit"]


class Asked(NamedTuple):
    """The request for a run: an input, a command or nothing (to continue), and its checkpoint."""

    given: dict[str, Any] | None = None
    told: Outcome | None = None
    at: str | None = None

    def input(self) -> Any:
        if self.told is None:
            return self.given
        sends = [Send(name_of(to), {"depth": depth}) for to, depth in self.told.mail]
        return Command(update=self.told.update or None, goto=[*map(name_of, self.told.leads), *sends])


class Fate(NamedTuple):
    """The fate of a run.

    Attributes:
        fails: the number of the body that fails.
        killed: the number of the commit at which the run is killed, then of those that continue it.
        then: the continuation after the last kill: one of two ways to continue, or a new input.
    """

    fails: int | None = None
    killed: tuple[int, ...] = ()
    then: str = "recover"


class Told(NamedTuple):
    """A command, for graphs of any size."""

    goto: list[int]
    mail: list[Packet]
    updates: bool


numbers = st.integers(0, 11)
modes = st.sampled_from(MODES)
limits = st.sampled_from([None, 1, 3])
places = st.none() | st.none() | st.integers(0, 30)
kills = st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple)
fates = st.one_of(
    st.just(Fate()),
    st.builds(Fate, fails=st.integers(0, 40)),
    st.builds(Fate, killed=kills, then=st.sampled_from(["recover", "no input", "input"])),
)
commands = st.builds(
    Told,
    goto=st.just([]) | st.lists(numbers, max_size=3),
    mail=st.just([]) | st.lists(st.tuples(numbers, st.integers(-1, 1)), max_size=3),
    updates=st.booleans(),
)


class KilledError(ConnectionError):
    """The death of the process."""


def running_id() -> str:
    """Return the id of the task whose body calls this."""
    info = get_runtime().execution_info
    assert info is not None
    return info.task_id


class ThreadMachine(RuleBasedStateMachine):
    """One thread of the engine, and the model's knowledge of it.

    Attributes:
        points: the stored points, by checkpoint, with the commands that were kept there.
        finished: the outcomes that are stored beside the newest checkpoint, by task.
        began, ended: the tasks whose bodies began and ended in the current run.
        doomed: the task whose body fails.
    """

    shape: Shape

    @initialize(shape=shapes())
    def set_up(self, shape: Shape) -> None:
        self.shape = shape
        self.loop = asyncio.new_event_loop()
        self.ids = patch("perdure.clock._random_suffix", lambda: SUFFIX)
        self.ids.start()
        self.clock = FakeClock()
        self.saver = WatchedSaver(self.clock)
        builder = build(shape, self.begin, self.end, turns=3)
        self.graph = builder.compile(checkpointer=self.saver, clock=self.clock, name="machine")
        self.points: dict[str, Point] = {}
        self.finished: dict[str, Outcome] = {}
        self.began: list[str] = []
        self.ended: list[str] = []
        self.doomed: str | None = None
        self.inputs = 0

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.ids.stop()
            self.loop.close()

    def wait(self, work: Awaitable[Any]) -> Any:
        return self.loop.run_until_complete(work)

    def begin(self, own: str) -> None:
        task_id = running_id()
        self.began.append(task_id)
        if task_id == self.doomed:
            raise ZeroDivisionError(own)

    def end(self, own: str) -> None:
        self.ended.append(running_id())

    # What is done

    @rule(fuel=st.integers(0, FUEL), at=places, mode=modes, limit=limits, fate=fates)
    def give_an_input(
        self, fuel: int, at: int | None, mode: Durability, limit: int | None, fate: Fate
    ) -> None:
        self.run(Asked(given=self.an_input(fuel), at=self.place(at)), mode, limit, fate)

    @rule(told=commands, at=places, mode=modes, limit=limits, fate=fates)
    def give_a_command(
        self, told: Told, at: int | None, mode: Durability, limit: int | None, fate: Fate
    ) -> None:
        size = self.shape.size
        leads = frozenset(number % size for number in told.goto)
        sent = [(number % size, depth) for number, depth in told.mail]
        update = self.an_input(3, news="told") if told.updates or not (leads or sent) else {}
        self.run(Asked(told=Outcome(ENTRY, update, leads, sent), at=self.place(at)), mode, limit, fate)

    @precondition(lambda self: self.points)
    @rule(at=places, mode=modes, limit=limits, fate=fates)
    def go_on(self, at: int | None, mode: Durability, limit: int | None, fate: Fate) -> None:
        self.run(Asked(at=self.place(at)), mode, limit, fate)

    def an_input(self, fuel: int, **more: str) -> dict[str, Any]:
        self.inputs += 1
        log = max((len(point.keys["log"]) for point in self.points.values()), default=0)
        said = f"input {self.inputs}"
        return {"log": [said], "facts": {"latest": said}, "heard": said, "fuel": log + fuel, **more}

    def place(self, at: int | None) -> str | None:
        return None if at is None or not self.points else sorted(self.points)[at % len(self.points)]

    # What comes of it

    def head(self) -> str:
        return max(self.points, default="")

    def drawing(self) -> IdSource:
        ids = IdSource(self.clock, suffix=SUFFIX)
        if self.points:
            ids.advance_past(self.head())
        return ids

    def opened(self, asked: Asked, ids: IdSource) -> tuple[Point, dict[str, Outcome]]:
        """Return the point where a run begins, and its bodies that have finished before."""
        shape, at = self.shape, asked.at or self.head()
        point = self.points.get(at, Point())
        if asked.given is not None:
            return started(shape, point, asked.given, ids.next()), {}
        finished = self.finished
        if at != self.head():
            point, finished = replace(point, id=ids.next(), step=point.step + 1), {}
        if asked.told is None:
            return point, finished
        if not self.points:
            return after(shape, point, [asked.told], ids.next()), {}
        return commanded(shape, point, asked.told), finished

    def predicted(self, asked: Asked) -> tuple[list[Point], dict[str, Outcome]]:
        ids = self.drawing()
        point, finished = self.opened(asked, ids)
        return trail(self.shape, point, finished, iter(ids.next, "")), finished

    def tasks(self, points: Iterable[Point], finished: Iterable[str]) -> list[str]:
        """Return the tasks of all bodies that run on the way, without those that had finished before."""
        bodies = [body for point in points for body in due(self.shape, point)]
        return [body.id for body in bodies if body.number != ENTRY and body.id not in finished]

    async def call(self, asked: Asked, mode: Durability, limit: int | None) -> Any:
        self.began.clear()
        self.ended.clear()
        config = thread(max_concurrency=limit)
        if asked.at is not None:
            config["configurable"]["checkpoint_id"] = asked.at
        return await self.graph.ainvoke(asked.input(), config, durability=mode)

    def run(self, asked: Asked, mode: Durability, limit: int | None, fate: Fate) -> None:
        points, finished = self.predicted(asked)
        if fate.killed:
            self.run_and_kill(asked, mode, limit, fate)
        elif fate.fails is not None and (tasks := self.tasks(points, finished)):
            self.doomed = tasks[fate.fails % len(tasks)]
            with pytest.raises(ZeroDivisionError):
                self.wait(self.call(asked, mode, limit))
            self.has_failed(points, finished, mode)
        else:
            self.has_ended(self.wait(self.call(asked, mode, limit)), points, finished, mode)

    def has_ended(
        self, result: Any, points: list[Point], finished: dict[str, Outcome], mode: Durability
    ) -> None:
        assert result == points[-1].keys
        assert Counter(self.began) == Counter(self.tasks(points, finished))
        self.note_stored(points, mode)
        self.finished = {}

    def has_failed(self, points: list[Point], finished: dict[str, Outcome], mode: Durability) -> None:
        [place] = [i for i, point in enumerate(points) if self.doomed in self.tasks([point], finished)]
        self.doomed = None
        before, now = self.tasks(points[:place], finished), self.tasks([points[place]], finished)
        assert Counter(self.began) <= Counter([*before, *now])
        assert Counter(before) <= Counter(self.ended)
        self.note_stored(points[: place + 1], mode)
        results = self.note_results(points[place], finished if place == 0 else {})
        assert set(now) & results == set(now) & set(self.ended), "what had finished is kept"

    def note_stored(self, points: list[Point], mode: Durability) -> None:
        """Note the points that a run has stored on its way; in durability "exit", only the last one."""
        first, new = points[0], [point for point in points if point.id not in self.points]
        if first.id in self.points and not (new and mode == "exit"):
            self.points[first.id] = first  # with a command that was kept there
        self.points.update((point.id, point) for point in (new[-1:] if mode == "exit" else new))

    def note_results(self, point: Point, finished: dict[str, Outcome]) -> set[str]:
        """Note the results that are stored beside this point, the newest one, and return their tasks."""
        rows = self.pending()
        bodies = [body for body in due(self.shape, point) if body.id in rows]
        self.finished = {
            body.id: finished.get(body.id) or outcome(self.shape, point, body) for body in bodies
        }
        return set(self.finished)

    def pending(self) -> set[str]:
        """Return the tasks with results beside the newest checkpoint, commands among them."""
        stored = self.wait(self.saver.aget_tuple(thread()))
        rows = [] if stored is None else stored.pending_writes or []
        return {task_id for task_id, channel, _ in rows if channel not in RESERVED_SLOTS}

    # Kills

    def run_and_kill(self, asked: Asked, mode: Durability, limit: int | None, fate: Fate) -> None:
        go_on = partial(self.call, Asked(), mode, limit) if fate.then == "no input" else self.recover
        attempt: Callable[[], Awaitable[Any]] = partial(self.call, asked, mode, limit)
        for nth in fate.killed:
            points, finished = self.predicted(asked)
            commands = self.commands()
            try:
                result = self.wait(self.killed_at(nth, attempt()))
            except KilledError:
                self.was_killed(points, finished, mode, commands)
            else:
                self.has_ended(result, points, finished, mode)
                return
            self.clock.advance(self.saver.lease_seconds)
            [orphan] = self.wait(self.saver.aorphans())
            if orphan.started or self.commands() != commands:
                asked = Asked()
            attempt = go_on
        if fate.then == "input":
            self.run(Asked(given=self.an_input(3)), mode, limit, Fate())
        else:
            self.has_ended(self.wait(go_on()), *self.predicted(asked), mode)

    async def recover(self) -> Any:
        self.began.clear()
        self.ended.clear()
        [recovered] = await recover(self.graph)
        if recovered.error is not None:
            raise recovered.error
        return recovered.output

    async def killed_at(self, nth: int, attempt: Awaitable[Any]) -> Any:
        left = nth

        async def before(commit: Commit) -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                raise KilledError

        self.saver.before_commit, self.saver.dead = before, True
        try:
            return await attempt
        finally:
            self.saver.before_commit, self.saver.dead = None, False

    def commands(self) -> set[str]:
        return {task_id for task_id in self.pending() if task_id.startswith("00000000-")}

    def was_killed(
        self, points: list[Point], finished: dict[str, Outcome], mode: Durability, commands: set[str]
    ) -> None:
        stored = self.wait(self.saver.aget_tuple(thread()))
        newest = "" if stored is None else stored.checkpoint["id"]
        places = [place for place, point in enumerate(points) if point.id == newest]
        assert places or newest == self.head(), "what is stored is a point of this run, or nothing is"
        if places and (newest not in self.points or self.commands() != commands):
            self.note_stored(points[: places[0] + 1], mode)
        if places:
            self.note_results(points[places[0]], finished if places == [0] else {})
        self.check_order(points, finished, mode)

    def check_order(self, points: list[Point], finished: dict[str, Outcome], mode: Durability) -> None:
        """Check that bodies ran at most once, and only as far ahead of the store as the durability allows."""
        assert Counter(self.began) <= Counter(self.tasks(points, finished))
        if mode == "exit":
            return
        ran = [place for place, point in enumerate(points) if set(self.began) & set(self.tasks([point], ()))]
        made = [place + 1 for place in ran if place < max(ran)]
        for place in made if mode == "sync" else made[:-1]:
            assert points[place].id in self.points

    # What holds at rest

    @invariant()
    def the_thread_is_what_the_model_says(self) -> None:
        stored = self.wait(self.listed())
        assert stored == sorted(self.points, reverse=True)
        if not stored:
            return
        point = self.points[self.head()]
        bodies = due(self.shape, point)
        results = [self.finished[body.id].update for body in bodies if body.id in self.finished]
        snapshot = self.wait(self.graph.aget_state(thread()))
        assert snapshot.values == (merged(point.keys, results, real=True) if results else point.keys)
        assert Counter(task.id for task in snapshot.tasks) == Counter(body.id for body in bodies)
        left = [name_of(body.number) for body in bodies if body.id not in self.finished]
        assert sorted(snapshot.next) == sorted(left)
        assert (snapshot.metadata or {})["step"] == point.step

    async def listed(self) -> list[str]:
        return [checkpoint.checkpoint["id"] async for checkpoint in self.saver.alist(thread())]


TestThread = ThreadMachine.TestCase
if not SWEEPS:
    TestThread.settings = hypothesis.settings(max_examples=50, stateful_step_count=10)
