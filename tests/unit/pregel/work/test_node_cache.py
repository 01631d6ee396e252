"""Cached nodes in a run: look-ups, kept results, and runs whose cache fails."""

from __future__ import annotations

import asyncio
from operator import itemgetter
from typing import Annotated, Any, TypedDict

import anyio
import pytest

from perdure.channels.untracked_value import UntrackedValue
from perdure.config import RunnableConfig, parse_config
from perdure.constants import END, START
from perdure.data import CachePolicy, Command, NodeError, RetryPolicy, Send
from perdure.errors import GraphValidationError
from perdure.graph.state import StateGraph
from perdure.pregel.graph import Pregel
from perdure.pregel.plan.warn_once import WarnOnce
from perdure.pregel.step.namespace import ROOT_NAMESPACE
from perdure.pregel.step.outcome import Failed, Finished
from perdure.pregel.step.task import Superstep, Task
from perdure.pregel.step.writes import writes_of
from perdure.pregel.work import node_cache as cached_module
from perdure.pregel.work.node_cache import NodeCache, node_cache
from perdure.pregel.work.running import Scope
from perdure.runtime import get_config
from perdure.testing import FakeClock
from tests.unit.pregel.caching import WatchedCache, broken, cached, silent
from tests.unit.pregel.graphs import Log, Runs, chain, fails, fan, logs, returns, thread
from tests.unit.pregel.savers import WatchedSaver


@pytest.fixture
def cache() -> WatchedCache:
    return WatchedCache()


@pytest.fixture
def runs() -> Runs:
    return Runs()


@pytest.fixture(autouse=True)
def nothing_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_module, "_warned", WarnOnce())


async def updates(graph: Pregel, given: Any, config: RunnableConfig | None = None) -> list[Any]:
    return [event async for event in graph.astream(given, config)]


# Hits


async def test_an_equal_input_takes_the_result_without_running_the_node(
    cache: WatchedCache, runs: Runs
) -> None:
    graph = cached(chain(["a", "b"], {"a": runs.counted("a"), "b": runs.counted("b")}), cache, "a")

    first = await graph.ainvoke({"x": 1})
    assert await graph.ainvoke({"x": 1}) == first == {"log": ["a", "b"], "x": 1}
    assert runs.of == {"a": 1, "b": 2}


async def test_another_input_runs_the_node(cache: WatchedCache, runs: Runs) -> None:
    graph = cached(chain(["a"], {"a": runs.counted("a")}), cache, "a")
    for x in (1, 2, True, 1.0):
        await graph.ainvoke({"x": x})
    assert runs.of == {"a": 4}


async def test_a_hit_is_told_as_an_update_that_says_so(cache: WatchedCache) -> None:
    graph = cached(chain(["a", "b"]), cache, "a")

    assert await updates(graph, {}) == [{"a": {"log": ["a"]}}, {"b": {"log": ["b"]}}]
    assert await updates(graph, {}) == [
        {"a": {"log": ["a"]}, "__metadata__": {"cached": True}},
        {"b": {"log": ["b"]}},
    ]


async def test_a_hit_is_stored_like_any_result(cache: WatchedCache) -> None:
    async def stored(thread_id: str) -> tuple[list[Any], list[int]]:
        saver = WatchedSaver()
        graph = cached(chain(["a", "b"]), cache, "a", checkpointer=saver)
        await graph.ainvoke({"x": 1}, thread(thread_id))
        rows = [row for commit in saver.acknowledged for row in commit.writes]
        return [(row.channel, row.payload) for row in rows], saver.steps()

    first = await stored("one")
    assert await stored("two") == first
    assert ("log", b'["a"]') in first[0]


async def test_one_superstep_asks_once_and_keeps_once(cache: WatchedCache, runs: Runs) -> None:
    names = ["a", "b", "c"]
    graph = cached(fan(names, {name: runs.counted(name) for name in names}), cache, "a", "b")

    await graph.ainvoke({})
    assert [len(keys) for keys in cache.asked] == [2]
    assert [len(keys) for keys in cache.kept] == [2]
    await graph.ainvoke({})
    assert [len(keys) for keys in cache.asked] == [2, 2]
    assert [len(keys) for keys in cache.kept] == [2]
    assert runs.of == {"a": 1, "b": 1, "c": 2}


async def test_of_a_superstep_only_what_is_not_known_is_run_and_kept(cache: WatchedCache, runs: Runs) -> None:
    async def square(n: int) -> Any:
        runs.of[str(n)] = runs.of.get(str(n), 0) + 1
        return {"log": [str(n * n)]}

    async def run(*numbers: int) -> Any:
        start = returns(Command(goto=[Send("b", n) for n in numbers]))
        return await cached(chain(["a"], {"a": start}).add_node("b", square), cache, "b").ainvoke({})

    assert await run(1, 2) == {"log": ["1", "4"]}
    assert await run(3, 2, 1) == {"log": ["9", "4", "1"]}
    assert runs.of == {"1": 1, "2": 1, "3": 1}
    assert [len(keys) for keys in cache.kept] == [2, 1]


async def test_equal_tasks_of_one_superstep_are_asked_for_once(cache: WatchedCache) -> None:
    start = returns(Command(goto=[Send("b", 1), Send("b", 1)]))
    graph = cached(chain(["a"], {"a": start}).add_node("b", logs("b")), cache, "b")
    for _ in range(2):
        assert await graph.ainvoke({}) == {"log": ["b", "b"]}
    assert [len(keys) for keys in (*cache.asked, *cache.kept)] == [1, 1, 1]


async def test_what_a_hit_gave_is_the_runs_own_to_change(cache: WatchedCache, runs: Runs) -> None:
    async def a(state: Any) -> Any:
        return {"y": [["fresh"]]}

    async def spoil(state: Any) -> None:
        state["y"][0].append("spoilt")

    graph = cached(chain(["a", "b"], {"a": runs.counted("a", a), "b": spoil}), cache, "a")
    for _ in range(3):
        assert (await graph.ainvoke({}))["y"] == [["fresh", "spoilt"]]
    assert runs.of == {"a": 1}


async def test_a_result_comes_back_with_its_types(cache: WatchedCache) -> None:
    value = {"t": (1, 2.0), "s": {1}, 3: b"x"}
    graph = cached(chain(["a"], {"a": returns({"y": value})}), cache, "a")
    for _ in range(2):
        result = await graph.ainvoke({})
        assert repr(result["y"]) == repr(value)


# Where a result goes


class Routed(TypedDict, total=False):
    n: int
    way: str
    log: Annotated[list[str], lambda left, right: left + right]


async def test_conditional_edges_are_followed_anew_on_a_hit(cache: WatchedCache, runs: Runs) -> None:
    asked: list[str] = []

    def way(state: Routed) -> str:
        asked.append(get_config()["metadata"]["langgraph_node"])
        return state["way"]

    builder = StateGraph(Routed)
    for name in ("a", "left", "right"):
        builder.add_node(name, runs.counted(name))
    builder.add_edge(START, "a").add_conditional_edges("a", way, ["left", "right"])
    policy = CachePolicy(key_func=lambda state: str(state["n"]))
    graph = cached(builder, cache, "a", policy=policy)

    assert (await graph.ainvoke({"n": 1, "way": "left"}))["log"] == ["a", "left"]
    assert (await graph.ainvoke({"n": 1, "way": "right"}))["log"] == ["a", "right"]
    assert runs.of == {"a": 1, "left": 1, "right": 1}
    assert asked == ["a", "a"]


async def test_a_conditional_edge_that_fails_on_a_hit_fails_the_run(cache: WatchedCache) -> None:
    fail = False

    def way(state: Any) -> str:
        if fail:
            raise ValueError("lost")
        return END

    graph = cached(chain(["a"]).add_conditional_edges("a", way), cache, "a")
    await graph.ainvoke({})
    fail = True
    with pytest.raises(ValueError, match="lost") as failure:
        await graph.ainvoke({})
    assert "During task with name 'a'" in failure.value.__notes__[0]


@pytest.mark.parametrize("attempts", [1, 2], ids=["handled", "tried again"])
async def test_a_conditional_edge_that_fails_on_a_hit_fails_as_it_would_without(
    cache: WatchedCache, runs: Runs, attempts: int
) -> None:
    failing: list[Exception] = []

    def way(state: Any) -> str:
        if failing:
            raise failing.pop()
        return END

    builder = StateGraph(Log).add_edge(START, "a").add_conditional_edges("a", way)
    builder.add_node(
        "a",
        runs.counted("a"),
        cache_policy=CachePolicy(),
        error_handler=logs("handled"),
        retry_policy=RetryPolicy(initial_interval=0, jitter=False, max_attempts=attempts),
    )
    graph = builder.compile(cache=cache)
    await graph.ainvoke({})
    failing.append(ConnectionError("lost"))

    assert await graph.ainvoke({}) == {"log": ["handled" if attempts == 1 else "a"]}
    assert (runs.of, failing) == ({"a": 1}, [])


async def test_each_attempt_of_a_hit_makes_its_writes_anew(cache: WatchedCache) -> None:
    graph = cached(chain(["a", "b"]), cache, "a")
    await graph.ainvoke({})
    [task] = await watching(graph).look_up([task_of(graph, {"log": []})])
    for _ in range(2):
        assert writes_of(graph.plan, task.spec, None) == [("log", ["a"]), ("branch:to:b", None)]


async def test_edges_are_the_graphs_own_not_the_caches(cache: WatchedCache, runs: Runs) -> None:
    names = ["a", "b"]
    ends = chain(["a"], {"a": runs.counted("a")}).add_node("b", logs("b"))
    goes_on = chain(["a", "b"], {"a": runs.counted("a")})
    assert list(ends.nodes) == names

    assert await cached(ends, cache, "a").ainvoke({}) == {"log": ["a"]}
    assert await cached(goes_on, cache, "a").ainvoke({}) == {"log": ["a", "b"]}
    assert runs.of == {"a": 1}


async def test_a_command_is_cached_with_where_it_goes(cache: WatchedCache, runs: Runs) -> None:
    command = Command(update={"x": 1}, goto=["b", Send("b", {"x": (1,)})])
    actions = {"a": runs.counted("a", returns(command))}
    graph = cached(chain(["a"], actions).add_node("b", logs("b")), cache, "a")

    first = await graph.ainvoke({})
    assert await graph.ainvoke({}) == first == {"log": ["b", "b"], "x": 1}
    assert runs.of == {"a": 1}


async def test_a_result_without_writes_is_one(cache: WatchedCache, runs: Runs) -> None:
    graph = cached(chain(["a", "b"], {"a": runs.counted("a", returns(None))}), cache, "a")
    for _ in range(2):
        assert await graph.ainvoke({}) == {"log": ["b"]}
    assert runs.of == {"a": 1}


# What is not cached


async def test_a_failure_is_not_kept_and_a_finished_sibling_is(cache: WatchedCache, runs: Runs) -> None:
    actions = {"a": runs.counted("a"), "b": runs.counted("b", fails(ValueError("no")))}
    graph = cached(fan(["a", "b"], actions), cache, "a", "b")
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            await graph.ainvoke({})
    assert runs.of == {"a": 1, "b": 2}


async def test_the_start_is_never_cached(cache: WatchedCache) -> None:
    graph = cached(chain(["a"]), cache, START)
    await graph.ainvoke({})
    assert cache.asked == cache.kept == []


async def test_a_task_that_handles_a_failure_is_not_looked_up(cache: WatchedCache) -> None:
    graph = cached(chain(["a"]), cache, "a")
    task = task_of(graph, {})._replace(handles=NodeError(node="b", error=ValueError()))
    await watching(graph).look_up([task])
    assert cache.asked == []


async def test_what_stands_in_for_a_failed_result_is_not_kept(cache: WatchedCache) -> None:
    graph = cached(chain(["a"]), cache, "a")
    seen, task = watching(graph), task_of(graph, {})
    await seen.look_up([task])
    handler = task._replace(handles=NodeError(node="a", error=ValueError()))
    writes = [("log", ["handled"])]
    await seen.keep([Failed(task, ValueError(), handler), Finished(handler, writes, len(writes))])
    assert cache.kept == []


async def test_writes_that_are_not_the_nodes_own_are_not_kept(cache: WatchedCache) -> None:
    graph = cached(chain(["a", "b"]), cache, "a")
    seen, task = watching(graph), task_of(graph, {})
    await seen.look_up([task])
    others = [("log", ["somebody else's"])]  # without the node's edges, as a handler's are
    await seen.keep([Finished(task, others, len(others))])
    assert cache.kept == []


def watching(graph: Pregel) -> NodeCache:
    seen = node_cache(graph.plan, scope_of(graph))
    assert seen is not None
    return seen


def scope_of(graph: Pregel) -> Scope:
    return Scope(settings=parse_config({}), cache=graph.cache, random=lambda: 0.0)


def task_of(graph: Pregel, given: Any) -> Task:
    superstep = Superstep("c", ROOT_NAMESPACE, 1, 9)
    return Task(graph.plan.nodes["a"], ("p", "a"), (), given, superstep)


async def test_without_a_cache_or_a_policy_there_is_nothing_to_do(cache: WatchedCache) -> None:
    for graph in (cached(chain(["a"]), None, "a"), cached(chain(["a"]), cache)):
        assert node_cache(graph.plan, scope_of(graph)) is None
        await graph.ainvoke({})
    assert cache.asked == cache.kept == []


async def test_what_is_resumed_with_its_result_is_not_looked_up(cache: WatchedCache, runs: Runs) -> None:
    failing = True

    async def b(state: Log) -> Any:
        if failing:
            raise ValueError("not yet")
        return {"log": ["b"]}

    graph = cached(
        fan(["a", "b"], {"a": runs.counted("a"), "b": b}), cache, "a", "b", checkpointer=WatchedSaver()
    )
    with pytest.raises(ValueError, match="not yet"):
        await graph.ainvoke({}, thread())
    failing = False
    assert await graph.ainvoke(None, thread()) == {"log": ["a", "b"]}
    assert [{namespace[-1] for namespace, _ in keys} for keys in cache.asked] == [{"a", "b"}, {"b"}]


# Inputs and results that cannot be cached


class Odd:
    pass


async def test_an_input_that_makes_no_key_is_not_cached_and_said_once(
    cache: WatchedCache, runs: Runs, caplog: pytest.LogCaptureFixture
) -> None:
    graph = cached(chain(["a"], {"a": runs.counted("a")}), cache, "a", name="agent")
    for _ in range(2):
        await graph.ainvoke({"y": [Odd()]})
    assert runs.of == {"a": 2}
    assert cache.asked == cache.kept == []
    (message,) = caplog.messages
    assert message.startswith(
        "A result of node 'a' of graph 'agent' is not cached: its input makes no key: "
        'the value at ["y"][0] has type tests.unit.pregel.work.test_node_cache.Odd'
    )


async def test_an_input_that_fails_when_it_is_looked_into_is_not_cached(
    cache: WatchedCache, caplog: pytest.LogCaptureFixture
) -> None:
    class Touchy(Odd):
        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError("hands off")

    async def a(state: Any) -> Any:
        return {"x": 1}

    graph = cached(chain(["a"], {"a": a}), cache, "a")
    task = task_of(graph, {"y": Touchy()})
    await watching(graph).look_up([task])
    assert cache.asked == []
    assert "hands off" in caplog.text or "Touchy" in caplog.text


async def test_an_action_that_makes_no_key_is_not_cached_and_said(
    cache: WatchedCache, runs: Runs, caplog: pytest.LogCaptureFixture
) -> None:
    getter = itemgetter("x")

    async def a(state: Any) -> Any:
        runs.of["a"] = runs.of.get("a", 0) + 1
        return {"x": getter(state)}

    graph = cached(chain(["a"], {"a": a}), cache, "a")
    for _ in range(2):
        assert await graph.ainvoke({"x": 1}) == {"x": 1, "log": []}
    assert runs.of == {"a": 2}
    assert cache.asked == []
    (message,) = caplog.messages
    assert "node 'a'" in message
    assert "its action makes no key: the value has type operator.itemgetter" in message


class Kept(TypedDict, total=False):
    n: int
    y: Any
    secret: Annotated[Any, UntrackedValue]


@pytest.mark.parametrize(
    ("result", "why"),
    [
        ({"y": [Odd()]}, "to state key 'y' cannot be stored: the value at [0] has type"),
        (
            {"n": 1, "secret": "s"},
            "to state key 'secret' cannot be stored: the key is never stored",
        ),
        (
            Command(goto=Send("b", Odd())),
            "to a Send cannot be stored: the value at .arg has type",
        ),
    ],
    ids=["a type", "an untracked key", "a Send"],
)
async def test_a_result_that_cannot_be_kept_is_not_cached_and_said_once(
    result: Any, why: str, cache: WatchedCache, runs: Runs, caplog: pytest.LogCaptureFixture
) -> None:
    builder = StateGraph(Kept).add_node("a", runs.counted("a", returns(result))).add_edge(START, "a")
    builder.add_node("b", returns(None))
    graph = cached(builder, cache, "a")
    for _ in range(2):
        await graph.ainvoke({"n": 0})
    assert runs.of == {"a": 2}
    assert cache.kept == []
    (message,) = caplog.messages
    assert f"node 'a' of graph 'LangGraph' is not cached: its write {why}" in message


# A cache that fails, or is slow


@pytest.mark.parametrize(("what", "said"), [("get", "was not looked up in"), ("set", "was not kept in")])
@pytest.mark.parametrize("trouble", [broken, silent])
async def test_a_run_goes_on_without_a_cache_that_does_not_answer(
    what: str,
    said: str,
    trouble: Any,
    cache: WatchedCache,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cached_module, "CACHE_SECONDS", 0.01)
    cache.before = trouble(what)
    graph = cached(chain(["a", "b", "c"]), cache, "a", "b", "c", name="agent")

    assert await graph.ainvoke({}) == {"log": ["a", "b", "c"]}
    assert (len(cache.asked), len(cache.kept)) == ((1, 0) if what == "get" else (1, 1))
    (message,) = caplog.messages
    assert message.startswith(
        f"A result of graph 'agent' {said} its cache. This run goes on without the cache: "
    )


async def test_the_next_run_asks_a_cache_that_failed_again(cache: WatchedCache, runs: Runs) -> None:
    graph = cached(chain(["a"], {"a": runs.counted("a")}), cache, "a")
    cache.before = broken("get")
    await graph.ainvoke({})
    cache.before = None
    for _ in range(2):
        await graph.ainvoke({})
    assert runs.of == {"a": 2}


@pytest.mark.parametrize("payload", [b"{", b"1", b"[1]", b'{"$perdure":["unknown",1]}'])
async def test_an_entry_that_cannot_be_read_is_none_and_is_replaced(
    payload: bytes, cache: WatchedCache, runs: Runs, caplog: pytest.LogCaptureFixture
) -> None:
    graph = cached(chain(["a"], {"a": runs.counted("a")}), cache, "a")
    await graph.ainvoke({})
    await cache.aset({cache.kept[0][0]: (payload, None)})

    for _ in range(2):
        assert await graph.ainvoke({}) == {"log": ["a"]}
    assert runs.of == {"a": 2}
    (message,) = caplog.messages
    assert "node 'a'" in message
    assert "its entry in the cache cannot be read" in message


# The policy


async def test_a_result_is_used_for_as_long_as_the_policy_says(runs: Runs) -> None:
    clock = FakeClock()
    cache = WatchedCache(clock)
    graph = cached(chain(["a"], {"a": runs.counted("a")}), cache, "a", policy=CachePolicy(ttl=60))
    await graph.ainvoke({})
    clock.advance(59)
    await graph.ainvoke({})
    assert runs.of == {"a": 1}
    clock.advance(1)
    await graph.ainvoke({})
    assert runs.of == {"a": 2}
    assert cache.ttls == [60, 60]


@pytest.mark.parametrize("made", ["k", b"k"])
async def test_a_key_func_replaces_the_input(made: Any, cache: WatchedCache, runs: Runs) -> None:
    given: list[Any] = []

    def key_func(state: Any) -> Any:
        given.append(state)
        return made

    policy = CachePolicy(key_func=key_func)
    graph = cached(chain(["a"], {"a": runs.counted("a")}), cache, "a", policy=policy)
    for state in ({"x": 1}, {"x": 2, "y": Odd()}):
        await graph.ainvoke(state)
    assert runs.of == {"a": 1}
    assert [state["x"] for state in given] == [1, 2]


async def test_keys_of_a_key_func_meet_neither_those_of_another_type_nor_inputs(cache: WatchedCache) -> None:
    policies = [CachePolicy(key_func=lambda state, made=made: made) for made in ("k", b"k")]
    for policy in (*policies, CachePolicy()):
        graph = cached(chain(["a"]).add_node("b", logs("b")), cache, "b", policy=policy)
        await watching(graph).look_up([with_input(graph, "k")])
    assert len({key for keys in cache.asked for key in keys}) == 3


def with_input(graph: Pregel, given: Any) -> Task:
    superstep = Superstep("c", ROOT_NAMESPACE, 1, 9)
    return Task(graph.plan.nodes["b"], ("p", "b"), (), given, superstep)


async def test_a_key_func_leaves_graph_node_and_code_in_the_key(cache: WatchedCache, runs: Runs) -> None:
    policy = CachePolicy(key_func=lambda state: "k")
    for name, factor in (("one", 1), ("one", 2), ("other", 1)):

        async def a(state: Any, factor: int = factor) -> Any:
            runs.of["a"] = runs.of.get("a", 0) + 1
            return {"x": factor}

        result = await cached(chain(["a"], {"a": a}), cache, "a", policy=policy, name=name).ainvoke({})
        assert result["x"] == factor
    assert runs.of == {"a": 3}


async def test_a_key_func_that_makes_no_key_is_named(cache: WatchedCache) -> None:
    policy = CachePolicy(key_func=lambda state: 7)  # type: ignore[arg-type, return-value]
    graph = cached(chain(["a"]), cache, "a", policy=policy)
    with pytest.raises(
        TypeError, match=r"key_func .* of node 'a' returned 7: expected str or bytes, not int\."
    ):
        await graph.ainvoke({})


async def test_a_key_func_that_fails_fails_the_run_and_is_named(cache: WatchedCache) -> None:
    def key_func(state: Any) -> str:
        raise KeyError("question")

    graph = cached(chain(["a"]), cache, "a", policy=CachePolicy(key_func=key_func))
    with pytest.raises(KeyError, match="question") as failure:
        await graph.ainvoke({})
    assert failure.value.__notes__ == ["In the key_func of the cache policy of node 'a'"]


# Forgetting


async def test_clearing_nodes_forgets_their_results_only(cache: WatchedCache, runs: Runs) -> None:
    names = ["a", "b"]
    graph = cached(chain(names, {name: runs.counted(name) for name in names}), cache, *names, name="one")
    other = cached(
        chain(names, {name: runs.counted("other " + name) for name in names}), cache, *names, name="two"
    )
    for each in (graph, other):
        await each.ainvoke({})

    await graph.aclear_cache(["a"])
    for each in (graph, other):
        await each.ainvoke({})
    assert runs.of == {"a": 2, "b": 1, "other a": 1, "other b": 1}
    await graph.aclear_cache()
    for each in (graph, other):
        await each.ainvoke({})
    assert runs.of == {"a": 3, "b": 2, "other a": 1, "other b": 1}


async def test_a_graph_without_a_cache_has_none_to_clear() -> None:
    with pytest.raises(GraphValidationError, match=r"No cache is set for this graph\. Cannot clear cache\."):
        await chain(["a"]).compile().aclear_cache()


async def test_clearing_a_node_that_there_is_not_names_the_nearest(cache: WatchedCache) -> None:
    graph = cached(chain(["plan"]), cache, "plan", name="agent")
    with pytest.raises(GraphValidationError, match=r"'agent' has no node 'plam'\. Did you mean 'plan'\?"):
        await graph.aclear_cache(["plam"])


async def test_what_finished_is_stored_although_the_run_is_cancelled_while_the_cache_keeps_it(
    cache: WatchedCache, runs: Runs
) -> None:
    keeping = anyio.Event()

    async def keeps_for_ever(pairs: Any) -> None:
        keeping.set()
        await anyio.sleep_forever()

    graph = cached(chain(["a"], {"a": runs.counted("a")}), cache, "a", checkpointer=WatchedSaver())
    cache.aset = keeps_for_ever  # type: ignore[method-assign]
    run = asyncio.create_task(graph.ainvoke({}, thread()))
    await keeping.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run

    assert (await graph.aget_state(thread())).values == {"log": ["a"]}
    assert runs.of == {"a": 1}
