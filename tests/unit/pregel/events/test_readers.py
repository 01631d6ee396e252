"""Several readers of one run: each has its own modes and its own cursor, and none misses an event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest

from perdure.data import Send
from perdure.errors import GraphValidationError
from perdure.pregel.events.buffer import BUFFER_SIZE, Buffer, Event, EventReader
from perdure.pregel.events.facts import Fact, SuperstepApplied, TaskEnded, TaskTold
from perdure.pregel.events.modes import PROJECTIONS, Projection
from perdure.pregel.step.namespace import ROOT_NAMESPACE
from perdure.runtime import get_stream_writer
from tests.unit.pregel.following import Followed, read
from tests.unit.pregel.graphs import Runs, chain, logs, returns, settle, thread
from tests.unit.pregel.savers import Brake, WatchedSaver


async def speaks(state: Any) -> Any:
    get_stream_writer()("hello")
    return {"log": ["a"]}


async def told_to_all(readers: Sequence[EventReader], run: Followed) -> list[list[Any]]:
    """Run to the end, and return what each reader was told."""
    told: list[list[Any]] = [[] for _ in readers]
    async with anyio.create_task_group() as group:
        for reader, into in zip(readers, told, strict=True):
            group.start_soon(read, reader, into)
        group.start_soon(run.run)
    return told


def event(number: int) -> Event:
    return ROOT_NAMESPACE, "custom", number


async def test_each_reader_gets_its_own_modes_in_its_own_shape() -> None:
    child = chain(["inner"]).compile()
    run = Followed(chain(["a", "b"], {"a": speaks, "b": child.ainvoke}).compile())
    readers = [
        run.reader("values"),
        run.reader("updates"),
        run.reader(["custom", "updates"]),
        run.reader("updates", subgraphs=True),
    ]
    values, updates, several, below = await told_to_all(readers, run)

    assert values == [{"log": ["a"]}, {"log": ["a", "a", "inner"]}]
    assert updates == [{"a": {"log": ["a"]}}, {"b": {"log": ["a", "inner"]}}]
    assert several == [("custom", "hello"), *(("updates", update) for update in updates)]
    [(namespace, inner)] = [each for each in below if each[0]]
    assert [update for path, update in below if not path] == updates
    assert inner == {"inner": {"log": ["inner"]}}
    assert [part.partition(":")[0] for part in namespace] == ["b"]


async def test_a_slow_reader_holds_the_run_up_and_loses_nothing() -> None:
    runs = Runs()
    builder = chain(["a"], {"a": runs.counted("a")}).add_edge("a", "a")
    run = Followed(builder.compile(), config={"recursion_limit": 3 * BUFFER_SIZE})
    quick, slow = run.reader("updates"), run.reader("updates")
    told_quick: list[Any] = []
    told_slow: list[Any] = []

    async with anyio.create_task_group() as group:
        group.start_soon(read, quick, told_quick)
        ending = asyncio.create_task(run.run())
        await settle(20 * BUFFER_SIZE)
        assert runs.of["a"] == len(told_quick) == BUFFER_SIZE
        group.start_soon(read, slow, told_slow)

    with pytest.raises(RecursionError):
        await ending
    assert told_slow == told_quick == [{"a": {"log": ["a"]}}] * (3 * BUFFER_SIZE)


async def test_a_reader_that_comes_late_gets_what_is_told_from_then_on() -> None:
    late: list[EventReader] = []

    async def invites(state: Any) -> None:
        late.append(run.reader("updates"))

    run = Followed(chain(["a", "b", "c"], {"b": invites}).compile())
    first = run.reader("updates")
    told_first: list[Any] = []
    told_late: list[Any] = []
    await run.run()
    await read(first, told_first)
    await read(late[0], told_late)

    assert told_first == [{"a": {"log": ["a"]}}, {"b": None}, {"c": {"log": ["c"]}}]
    assert told_late == told_first[1:]


async def test_all_readers_that_wait_are_woken_by_an_event_and_by_the_end() -> None:
    buffer = Buffer()
    told: list[list[Any]] = [[], [], []]
    async with anyio.create_task_group() as group:
        for into in told:
            group.start_soon(read, buffer.reader("custom"), into)
        await settle()
        for number in range(3):
            buffer.put(event(number))
            await settle()
            assert told == [[*range(number + 1)]] * 3
        buffer.close()


async def test_all_readers_that_wait_are_woken_by_an_event_from_a_thread() -> None:
    buffer = Buffer()
    told: list[list[Any]] = [[], [], []]
    async with anyio.create_task_group() as group:
        for into in told:
            group.start_soon(read, buffer.reader("custom"), into)
        await settle()
        await asyncio.to_thread(put_many, buffer)
        await settle()
        assert told == [[*range(100)]] * 3
        buffer.close()


def put_many(buffer: Buffer) -> None:
    for number in range(100):
        buffer.put(event(number))


async def test_a_reader_that_catches_up_does_not_make_another_miss_the_next_event() -> None:
    buffer = Buffer()
    quick, slow = buffer.reader("custom"), buffer.reader("custom")
    told: list[Any] = []
    async with anyio.create_task_group() as group:
        group.start_soon(read, quick, told)
        buffer.put(event(0))
        await settle()  # the quick one has read, and waits
        assert list(await slow.batch()) == [0]
        buffer.put(event(1))
        await settle()
        assert told == [0, 1]
        buffer.close()


async def test_events_are_kept_until_the_slowest_reader_has_taken_them_and_no_longer() -> None:
    buffer = Buffer()
    quick, slow = buffer.reader("custom"), buffer.reader("custom")
    for number in range(BUFFER_SIZE):
        buffer.put(event(number))

    await quick.batch()
    assert (buffer.taken, buffer.is_full) == (0, True)
    await slow.batch()
    assert (buffer.taken, buffer.is_full) == (BUFFER_SIZE, False)


async def test_an_event_that_a_reader_does_not_see_is_taken_all_the_same() -> None:
    run = Followed(chain([f"n{i}" for i in range(2 * BUFFER_SIZE)]).compile())
    unheard, updates = await told_to_all([run.reader("custom"), run.reader("updates")], run)

    assert unheard == []
    assert len(updates) == 2 * BUFFER_SIZE


async def test_a_reader_of_an_unknown_mode_is_not_waited_for() -> None:
    buffer = Buffer()
    with pytest.raises(GraphValidationError, match="Unknown stream_mode 'tokens'"):
        buffer.reader("tokens")  # type: ignore[arg-type]  # as a caller without a type checker might
    reader = buffer.reader("custom")
    buffer.put(event(0))
    await reader.batch()

    assert buffer.taken == 1


async def test_in_sync_no_reader_gets_values_before_they_are_stored() -> None:
    saver = WatchedSaver()
    brake = Brake(saver)
    graph = chain(["a", "b"]).compile(checkpointer=saver)
    run = Followed(graph, {"x": 1}, thread(), durability="sync")
    told: list[list[Any]] = [[], [], []]
    shapes = ("values", ["values", "updates"], ["values"])
    async with anyio.create_task_group() as group:
        for modes, into in zip(shapes, told, strict=True):
            group.start_soon(read, run.reader(modes), into)
        group.start_soon(run.run)
        await brake.held.wait()
        await settle()
        given = {"log": [], "x": 1}
        assert saver.acknowledged == []
        assert told == [
            [given],
            [("values", given), ("updates", {"a": {"log": ["a"]}})],
            [("values", given)],
        ], "the update is provisional; the values are to follow what is stored"
        brake.released.set()

    assert [values["log"] for values in told[0]] == [[], ["a"], ["a", "b"]]
    assert told[2] == [each for each in told[1] if each[0] == "values"]


# Nothing is built that nobody listens to


def counted_projection(mode: str, calls: list[str]) -> Projection:
    projection = PROJECTIONS[mode]

    def project(fact: Any) -> Any:
        calls.append(mode)
        return projection.project(fact)

    return projection._replace(project=project)


@pytest.mark.parametrize(
    ("mode", "kinds"),
    [("values", {SuperstepApplied}), ("updates", {TaskEnded}), ("custom", {TaskTold})],
)
async def test_only_what_the_mode_of_some_reader_listens_for_is_built(
    monkeypatch: pytest.MonkeyPatch, mode: str, kinds: set[type[Fact]]
) -> None:
    made: set[type[Fact]] = set()
    projected: list[str] = []
    for name, projection in list(PROJECTIONS.items()):
        monkeypatch.setitem(PROJECTIONS, name, counted_projection(name, projected))
        for kind in projection.listens:
            monkeypatch.setattr(kind, "__new__", noting(made, kind.__new__))
    graph = chain(["a", "b"], {"a": speaks, "b": returns(None)}).compile()
    [_ async for _ in graph.astream({}, stream_mode=mode)]  # type: ignore[arg-type]

    assert made == kinds
    assert set(projected) == {mode}


def noting(made: set[type[Fact]], make: Callable[..., Any]) -> Any:
    def new(kind: Any, *fields: Any) -> Any:
        made.add(kind)
        return make(kind, *fields)

    return staticmethod(new)


async def test_a_mode_that_several_readers_ask_for_is_projected_once_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    projected: list[str] = []
    monkeypatch.setitem(PROJECTIONS, "updates", counted_projection("updates", projected))
    run = Followed(chain(["a", "b"]).compile())
    readers = [
        run.reader("updates"),
        run.reader(["updates", "values"]),
        run.reader("updates", subgraphs=True),
    ]
    await run.run()

    assert projected.count("updates") == 3, "START and two nodes"
    assert all([await reader.batch() for reader in readers])


async def test_a_child_graph_builds_nothing_for_readers_of_the_outer_one_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    projected: list[str] = []
    for name in list(PROJECTIONS):
        monkeypatch.setitem(PROJECTIONS, name, counted_projection(name, projected))
    child = chain(["x", "y", "z"], {"x": speaks}).compile()
    graph = chain(["a"], {"a": child.ainvoke}).compile()
    [_ async for _ in graph.astream({}, stream_mode=["updates", "values", "custom"])]

    assert sorted(projected) == ["updates", "updates", "values", "values", "values"], "START and node a"


async def test_many_siblings_that_end_while_a_reader_is_slow_all_go_on() -> None:
    sends = [Send("b", n) for n in range(4 * BUFFER_SIZE)]
    graph = chain(["a"], {"a": returns(sends)}).add_node("b", logs("b")).compile()
    told = []
    async for update in graph.astream({}):
        await settle(2)
        told.append(update)

    assert told == [{"a": None}, *[{"b": {"log": ["b"]}}] * len(sends)]
