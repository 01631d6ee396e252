"""Events of child graphs: each tells the namespace of its graph, however that graph was called."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from perdure.checkpoint.base import Commit
from perdure.constants import START
from perdure.data import RetryPolicy, Send
from perdure.pregel.events.buffer import BUFFER_SIZE
from perdure.pregel.graph import Pregel
from perdure.pregel.plan.plan import Policies
from perdure.pregel.step.namespace import Namespace
from perdure.runtime import get_runtime
from tests.unit.pregel.following import Followed, flushes, read
from tests.unit.pregel.graphs import Log, chain, fails, fan, returns, settle, thread, with_policies
from tests.unit.pregel.savers import WatchedSaver

Action = Callable[[Any], Awaitable[Any]]


@pytest.fixture(params=[False, True], ids=["nothing stored", "stored"])
def saver(request: pytest.FixtureRequest) -> WatchedSaver | None:
    return WatchedSaver() if request.param else None


def says_where() -> str:
    """Tell, as an event, the namespace that the graph of this node has."""
    runtime = get_runtime()
    assert runtime.execution_info is not None
    around = Namespace(runtime.execution_info.checkpoint_ns).parent
    assert around is not None
    runtime.stream_writer(around.text)
    return around.text


async def says(state: Any) -> Any:
    says_where()
    return {"log": ["said"]}


def saying() -> Pregel:
    return chain(["x"], {"x": says}).compile()


async def told(graph: Pregel, given: Any = None, **more: Any) -> list[tuple[Any, ...]]:
    config = thread() if graph.checkpointer else None
    stream = graph.astream({} if given is None else given, config, subgraphs=True, **more)
    return [event async for event in stream]


def nodes(namespace: tuple[str, ...]) -> list[str]:
    return [part.partition(":")[0] for part in namespace]


async def check_places(graph: Pregel, expected: list[list[str]]) -> None:
    """Compare where events say that they come from with where the nodes say that they run."""
    events = await told(graph, stream_mode="custom")
    assert [list(namespace) for namespace, _ in events] == [list(Namespace(said).path) for _, said in events]
    assert sorted(nodes(namespace) for namespace, _ in events) == expected


async def test_a_graph_that_is_a_node_tells_the_namespace_of_its_task(saver: WatchedSaver | None) -> None:
    graph = chain(["a", "b"], {"a": says, "b": saying().ainvoke}).compile(checkpointer=saver)
    await check_places(graph, [[], ["b"]])


async def test_graphs_two_deep_tell_both_namespaces(saver: WatchedSaver | None) -> None:
    middle = chain(["m", "n"], {"m": saying().ainvoke, "n": says}).compile()
    graph = chain(["a"], {"a": middle.ainvoke}).compile(checkpointer=saver)
    await check_places(graph, [["a"], ["a", "m"]])


async def test_the_second_and_third_graph_of_one_node_tell_their_ordinals(saver: WatchedSaver | None) -> None:
    async def thrice(state: Any) -> None:
        for _ in range(3):
            await chain(["m"], {"m": saying().ainvoke}).compile().ainvoke({})

    graph = chain(["a"], {"a": thrice}).compile(checkpointer=saver)
    await check_places(graph, [["a", "1", "m"], ["a", "2", "m"], ["a", "m"]])


async def test_graphs_that_one_node_runs_at_once_are_told_apart(saver: WatchedSaver | None) -> None:
    async def both(state: Any) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(saying().ainvoke, {})
            group.start_soon(saying().ainvoke, {})

    await check_places(chain(["a"], {"a": both}).compile(checkpointer=saver), [["a"], ["a", "1"]])


async def test_graphs_in_parallel_sends_tell_the_tasks_apart(saver: WatchedSaver | None) -> None:
    sends = [Send("b", {}) for _ in range(5)]
    builder = chain(["a"], {"a": returns(sends)}).add_node("b", saying().ainvoke)
    graph = builder.compile(checkpointer=saver)
    await check_places(graph, [["b"]] * 5)
    events = await told(graph, stream_mode="custom")

    assert len({namespace for namespace, _ in events}) == 5


async def test_a_graph_that_a_sync_node_invokes_tells_the_namespace_of_its_task() -> None:
    def invokes(state: Log) -> None:
        saying().invoke({})
        saying().invoke({})

    builder = chain([]).add_node("a", invokes)
    await check_places(builder.add_edge(START, "a").compile(), [["a"], ["a", "1"]])


@pytest.mark.parametrize("own", [False, True], ids=["the saver around", "a saver of its own"])
async def test_a_graph_on_a_thread_of_its_own_is_told_below_the_node_that_runs_it(
    own: bool,
) -> None:
    child = chain(["x"], {"x": says}).compile(checkpointer=WatchedSaver() if own else None)

    async def elsewhere(state: Any) -> None:
        await child.ainvoke({}, thread("other"))

    graph = chain(["a"], {"a": elsewhere}).compile(checkpointer=WatchedSaver())
    [(namespace, said)] = await told(graph, stream_mode="custom")

    assert said == "", "for its own thread it is the root"
    assert nodes(namespace) == ["a"]


async def test_another_attempt_tells_the_same_namespace() -> None:
    failing: list[Exception] = [ConnectionError("once")]

    async def tries(state: Any) -> None:
        await saying().ainvoke({})
        if failing:
            raise failing.pop()

    retry = Policies(retry=(RetryPolicy(initial_interval=0, jitter=False),))
    graph = with_policies(chain(["a"], {"a": tries}).compile(), {"a": retry})
    (first, _), (second, _) = await told(graph, stream_mode="custom")

    assert first == second
    assert nodes(first) == ["a"]


async def test_a_failing_graph_tells_what_it_did_before() -> None:
    child = chain(["x", "y"], {"y": fails(ValueError("boom"))}).compile()
    stream = chain(["a"], {"a": child.ainvoke}).compile().astream({}, subgraphs=True)
    namespace, update = await anext(stream)
    with pytest.raises(ValueError, match="boom"):
        await anext(stream)

    assert (nodes(namespace), update) == (["a"], {"x": {"log": ["x"]}})


async def test_several_modes_are_told_with_their_namespace_first() -> None:
    graph = chain(["a"], {"a": saying().ainvoke}).compile()
    events = [
        (nodes(namespace), mode, payload)
        for namespace, mode, payload in await told(graph, stream_mode=["values", "updates"])
    ]

    assert events == [
        (["a"], "values", {"log": []}),
        (["a"], "updates", {"x": {"log": ["said"]}}),
        (["a"], "values", {"log": ["said"]}),
        ([], "updates", {"a": {"log": ["said"]}}),
        ([], "values", {"log": ["said"]}),
    ]


async def test_without_subgraphs_only_the_outer_graph_is_told() -> None:
    async def both(state: Any) -> None:
        says_where()
        await saying().ainvoke({})

    stream = chain(["a"], {"a": both}).compile().astream({}, stream_mode=["custom", "updates"])

    assert [event async for event in stream] == [("custom", ""), ("updates", {"a": None})]


# A graph that is streamed in a node


def streaming(child: Pregel, into: list[Any], **how: Any) -> Action:
    async def action(state: Any) -> None:
        async for event in child.astream({}, **how):
            into.append(event)  # noqa: PERF401  # as they come

    return action


async def test_a_graph_that_a_node_streams_is_read_by_the_node_and_by_the_outer_reader() -> None:
    inner: list[Any] = []
    child = chain(["m", "n"], {"m": saying().ainvoke, "n": says}).compile()
    node = streaming(child, inner, stream_mode="custom", subgraphs=True)
    outer = await told(chain(["a"], {"a": node}).compile(), stream_mode="custom")

    assert [nodes(namespace) for namespace, _ in inner] == [["m"], []]
    assert [nodes(namespace) for namespace, _ in outer] == [["a", "m"], ["a"]]
    assert [said for _, said in inner] == [said for _, said in outer]


async def test_the_two_readers_may_ask_for_different_modes() -> None:
    inner: list[Any] = []
    node = streaming(saying(), inner, stream_mode="values")
    outer = await told(chain(["a"], {"a": node}).compile(), stream_mode=["custom", "updates"])

    assert inner == [{"log": ["said"]}]
    assert [(nodes(namespace), mode) for namespace, mode, _ in outer] == [
        (["a"], "custom"),
        (["a"], "updates"),
        ([], "updates"),
    ]


async def test_a_node_may_stream_a_graph_although_nobody_reads_the_outer_one_that_deep() -> None:
    inner: list[Any] = []
    graph = chain(["a"], {"a": streaming(saying(), inner)}).compile()

    assert [event async for event in graph.astream({})] == [{"a": None}]
    assert inner == [{"x": {"log": ["said"]}}]


async def test_the_second_graph_that_a_node_streams_tells_its_ordinal_to_the_outer_reader() -> None:
    inner: list[Any] = []
    once = streaming(saying(), inner, stream_mode="custom", subgraphs=True)

    async def twice(state: Any) -> None:
        await once(state)
        await once(state)

    outer = await told(chain(["a"], {"a": twice}).compile(), stream_mode="custom")

    assert [namespace for namespace, _ in inner] == [(), ()]
    assert [nodes(namespace) for namespace, _ in outer] == [["a"], ["a", "1"]]


@pytest.mark.parametrize("width", [1, 2])
async def test_a_graph_that_a_sync_node_streams_is_read_by_the_node_and_by_the_outer_reader(
    width: int,
) -> None:
    inner: list[Any] = []
    child = chain(["x"], {"x": flushes(3 * BUFFER_SIZE)}).compile()

    def streams(state: Log) -> None:
        inner.extend(child.stream({}, stream_mode="custom"))

    builder = fan(["other"][: width - 1]).add_node("a", streams).add_edge(START, "a")
    outer = await told(builder.compile(), stream_mode="custom")

    assert inner == list(range(3 * BUFFER_SIZE))
    assert [said for _, said in outer] == inner
    assert {tuple(nodes(namespace)) for namespace, _ in outer} == {("a",)}


async def test_a_graph_of_which_a_node_reads_the_first_event_only_ends_with_the_run() -> None:
    child = chain(["x"]).add_edge("x", "x").compile()

    async def reads_one(state: Any) -> None:
        async for _ in child.astream({}):
            break

    graph = chain(["a", "b"], {"a": reads_one}).compile(checkpointer=WatchedSaver())
    events = await told(graph)
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others)

    assert events[-1] == ((), {"b": {"log": ["b"]}})


async def test_in_sync_the_values_of_a_child_graph_are_told_only_after_they_are_stored() -> None:
    saver = WatchedSaver()
    child = chain(["x", "y"]).compile()
    graph = chain(["a"], {"a": child.ainvoke}).compile(checkpointer=saver)
    stored: list[tuple[str, ...]] = []

    async def is_stored_later(commit: Commit) -> None:
        await settle()
        stored.extend(Namespace(row.ns).path for row in commit.checkpoints)

    saver.before_commit = is_stored_later
    run = Followed(graph, {"x": 1}, thread(), durability="sync")
    reader = run.reader("values", subgraphs=True)
    ending = asyncio.create_task(run.run())
    told: list[Any] = []
    while batch := await reader.batch():
        told += [(nodes(path), values["log"], stored.count(path)) for path, values in batch]
    await ending

    assert told == [
        ([], [], 0),  # the input, which the claim has recorded
        (["a"], [], 1),  # that of the child graph, which no claim knows
        (["a"], ["x"], 3),  # with the checkpoint of its START
        (["a"], ["x", "y"], 4),
        ([], ["x", "y"], 3),
    ]


async def test_a_slow_outer_reader_holds_a_graph_up_that_a_node_streams() -> None:
    inner: list[Any] = []
    child = chain(["x"]).add_edge("x", "x").compile()
    node = streaming(child, inner)
    run = Followed(chain(["a"], {"a": node}).compile(), config={"recursion_limit": 1000})
    reader = run.reader("updates", subgraphs=True)
    ending = asyncio.create_task(run.run())
    await settle(2000)
    held_at = len(inner)
    outer: list[Any] = []
    await read(reader, outer)

    with pytest.raises(RecursionError):
        await ending
    assert held_at < 100
    assert len(inner) == len(outer) == 1000
