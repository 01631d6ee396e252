"""Actions other than functions: runnables of other packages, dicts of actions, compiled graphs."""

from __future__ import annotations

import operator
import threading
import warnings
from typing import Annotated, Any, TypedDict

import anyio
import pytest

from perdure.config import RunnableConfig
from perdure.constants import ROOT, START
from perdure.data import Send
from perdure.errors import GraphValidationError, NodeSignatureError
from perdure.graph.actions.runnables import action_of
from perdure.graph.state import StateGraph
from perdure.pregel.graph import Pregel
from perdure.pregel.plan.plan import InputReader
from perdure.runtime import get_config
from tests.unit.pregel.graphs import Log, Runs, chain, logs, thread
from tests.unit.pregel.savers import WatchedSaver


class Async:
    """As the runnables of other packages are: `invoke` is there, but `ainvoke` is meant."""

    def __init__(self) -> None:
        self.configs: list[Any] = []

    def get_name(self) -> str:
        return "async"

    def invoke(self, input: Any, config: Any = None, **more: Any) -> Any:
        raise AssertionError("the sync face was used")

    async def ainvoke(self, input: Any, config: dict[str, Any] | None = None, **more: Any) -> Any:
        self.configs.append(config)
        return {"log": ["async"], "x": input.get("x", 0) + 1}


class Sync:
    """Has only a sync face, which takes no config."""

    def invoke(self, input: Any) -> Any:
        assert threading.current_thread() is not threading.main_thread()
        return {"log": ["sync"]}


def only(action: Any, state: Any = Log) -> Pregel:
    """Build a graph of one node."""
    return StateGraph(state).add_node("a", action).add_edge(START, "a").compile()


# Runnables


async def test_an_object_is_run_by_its_ainvoke_and_given_its_tasks_config() -> None:
    runnable = Async()
    graph = StateGraph(Log).add_node(runnable).add_edge(START, "async").compile()

    assert await graph.ainvoke({"x": 1}, {"tags": ["t"]}) == {"log": ["async"], "x": 2}
    [config] = runnable.configs
    assert config["tags"] == ["t"]
    assert config["metadata"]["langgraph_node"] == "async"


async def test_an_object_with_only_a_sync_face_runs_in_a_thread() -> None:
    assert await only(Sync()).ainvoke({}) == {"log": ["sync"]}


class Both:
    """A callable object that is a runnable as well is run as one."""

    def __call__(self) -> None:
        raise AssertionError("it was called")

    async def ainvoke(self, input: Any) -> Any:
        return {"log": ["both"]}


async def test_a_callable_object_that_is_a_runnable_is_run_as_one() -> None:
    assert await only(Both()).ainvoke({}) == {"log": ["both"]}


@pytest.mark.parametrize("made", [Async, Sync])
@pytest.mark.parametrize("sync", [True, False])
async def test_a_runnable_that_a_node_returns_is_run_on_the_nodes_input(made: Any, sync: bool) -> None:
    def choose(state: Log) -> Any:
        return made()

    async def choose_async(state: Log) -> Any:
        return made()

    result = await only(choose if sync else choose_async).ainvoke({"x": 4})

    assert result == ({"log": ["async"], "x": 5} if made is Async else {"log": ["sync"], "x": 4})


async def test_a_runnable_may_return_a_runnable() -> None:
    class Chooses:
        async def ainvoke(self, input: Any) -> Any:
            return Async()

    assert (await only(lambda state: Chooses()).ainvoke({}))["log"] == ["async"]


async def test_a_runnable_in_the_state_is_a_value_like_any_other() -> None:
    runnable = Async()

    async def keep(state: Log) -> Any:
        return {"y": runnable}

    assert (await only(keep).ainvoke({}))["y"] is runnable
    assert runnable.configs == []


# Dicts


class Two(TypedDict, total=False):
    one: Any
    two: Any
    x: int


async def test_the_members_of_a_dict_run_side_by_side_on_one_input() -> None:
    met = [anyio.Event(), anyio.Event()]

    async def one(state: Two) -> Any:
        met[0].set()
        await met[1].wait()
        return state["x"] + 1

    async def two(state: Two, config: RunnableConfig) -> Any:
        met[1].set()
        await met[0].wait()
        return config["metadata"]["langgraph_node"]

    with anyio.fail_after(10):
        assert await only({"one": one, "two": two}, Two).ainvoke({"x": 1}) == {"one": 2, "two": "a", "x": 1}


async def test_a_member_is_whatever_a_node_can_be() -> None:
    def sync(state: Two) -> Any:
        return threading.current_thread() is threading.main_thread()

    child = StateGraph(Two).add_node("c", lambda state: {"x": 7}).add_edge(START, "c").compile()
    action = {"one": sync, "two": {"child": child, "runnable": Sync()}}

    assert await only(action, Two).ainvoke({"x": 1}) == {
        "one": False,
        "two": {"child": {"x": 7}, "runnable": {"log": ["sync"]}},
        "x": 1,
    }


async def test_a_members_error_is_the_nodes_as_itself_and_stops_the_others() -> None:
    stopped = []

    async def fails(state: Two) -> Any:
        raise ValueError("boom")

    async def waits(state: Two) -> Any:
        try:
            await anyio.sleep_forever()
        finally:
            stopped.append(True)

    with pytest.raises(ValueError, match="boom") as raised:
        await only({"one": fails, "two": waits}, Two).ainvoke({})

    assert stopped == [True]
    assert any("During task with name 'a'" in note for note in raised.value.__notes__)


def test_members_are_checked_like_nodes_and_a_dict_has_no_name_of_its_own() -> None:
    with pytest.raises(GraphValidationError, match="Node 'a' is 5, which cannot be called"):
        action_of("a", {"one": 5})
    with pytest.raises(NodeSignatureError, match="Node 'a' has the signature"):
        action_of("a", {"one": lambda: None})
    with pytest.raises(GraphValidationError, match="Expected a function or another callable"):
        StateGraph(Two).add_node({"one": logs("one")})


# Compiled graphs


class Inner(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    x: int
    secret: str


class InnerOutput(TypedDict, total=False):
    x: int
    secret: str


async def remember(state: Inner) -> Any:
    return {"secret": "kept", "x": state["x"] * 2, "log": [f"in {sorted(state)}"]}


def inner(**more: Any) -> Pregel:
    return StateGraph(Inner, **more).add_node("r", remember).add_edge(START, "r").compile(name="inner")


async def test_a_graph_is_given_the_keys_it_shares_and_writes_the_keys_it_shares() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = await only(inner()).ainvoke({"x": 2, "y": "not shared"})

    assert result == {"log": ["in ['log', 'x']"], "x": 4, "y": "not shared"}


async def test_a_graphs_own_schemas_bound_what_it_is_given_and_what_it_writes() -> None:
    class OnlyX(TypedDict):
        x: int

    graph = inner(input_schema=OnlyX, output_schema=InnerOutput)

    assert await only(graph).ainvoke({"x": 2, "log": ["out"]}) == {"log": ["out"], "x": 4}


async def test_what_a_graph_returns_goes_through_the_reducers_around_it_as_it_is() -> None:
    graph = chain(["a", "child", "b"], {"child": chain(["c"]).compile()})  # type: ignore[dict-item]

    assert (await graph.compile().ainvoke({"log": ["in"]}))["log"] == ["in", "a", "in", "a", "c", "b"]


async def test_a_graph_is_named_by_its_own_name_and_takes_what_it_is_sent() -> None:
    class Numbers(TypedDict, total=False):
        x: Annotated[list[Any], lambda old, new: [*old, new]]

    class Number(TypedDict, total=False):
        x: int

    child = StateGraph(Number).add_node("n", lambda state: {"x": state["x"] * 10}).add_edge(START, "n")
    builder = StateGraph(Numbers).add_node(
        "send", lambda state: [Send("inner", {"x": 1}), Send("inner", {"x": 2})]
    )
    graph = builder.add_node(child.compile(name="inner")).add_edge(START, "send").compile()

    assert await graph.ainvoke({}) == {"x": [10, 20]}


async def test_a_graph_as_a_node_is_resumed_where_it_stopped() -> None:
    saver, runs, broken = WatchedSaver(), Runs(), [ValueError("boom")]

    async def fails_once(state: Log) -> Any:
        if broken:
            raise broken.pop()
        return {"log": ["b"]}

    child = chain(["a", "b"], {"a": runs.counted("a"), "b": fails_once}).compile()
    graph = StateGraph(Log).add_node("child", child).add_edge(START, "child").compile(checkpointer=saver)
    with pytest.raises(ValueError, match="boom"):
        await graph.ainvoke({"x": 1}, thread())

    assert await graph.ainvoke(None, thread()) == {"log": ["a", "b"], "x": 1}
    assert runs.of == {"a": 1}
    assert len({row.ns for commit in saver.sent for row in commit.checkpoints}) == 2


async def test_a_graph_that_is_bound_to_a_config_runs_with_it_as_a_node() -> None:
    seen: list[Any] = []

    async def look(state: Log) -> None:
        seen.append(get_config())

    child = chain(["c"], {"c": look}).compile().with_config({"tags": ["bound"], "configurable": {"k": 1}})
    await only(child).ainvoke({}, {"tags": ["outer"], "configurable": {"k": 0, "l": 0}})

    [config] = seen
    assert config["tags"] == ["outer", "bound"]
    assert {key: config["configurable"][key] for key in "kl"} == {"k": 1, "l": 0}


async def test_a_graph_whose_state_is_one_value_is_given_it_whole_and_returns_it_whole() -> None:
    async def double(number: int) -> int:
        return number * 2

    child = StateGraph(int).add_node(double).add_edge(START, "double").compile()
    graph = StateGraph(int).add_node("child", child).add_edge(START, "child").compile()

    assert graph.plan.nodes["child"].reader == InputReader(bare=ROOT)
    assert await graph.ainvoke(4) == 8


async def test_what_a_graph_of_keys_returns_is_the_one_value_of_the_state_around_it() -> None:
    child = StateGraph(Log).add_node("c", logs("c")).add_edge(START, "c").compile()
    graph = StateGraph(dict).add_node("child", child).add_edge(START, "child").compile()

    assert await graph.ainvoke({"x": 1, "other": 2}) == {"log": ["c"], "x": 1}


def test_a_graph_below_keys_is_given_those_that_it_shares() -> None:
    builder = StateGraph(Log).add_node("child", inner()).add_edge(START, "child")

    assert builder.compile().plan.nodes["child"].reader == InputReader(keys=("log", "x"))


# Finding them


def nested() -> Pregel:
    leaf = chain(["leaf"]).compile()
    middle = StateGraph(Log).add_node("m", leaf).add_node("plain", logs("p")).add_edge(START, "m").compile()
    return StateGraph(Log).add_node("o", middle).add_node("other", leaf).add_edge(START, "o").compile()


async def test_graphs_among_the_nodes_are_found() -> None:
    graph = nested()

    assert [name for name, _ in graph.get_subgraphs()] == ["o", "other"]
    assert [name for name, _ in graph.get_subgraphs(recurse=True)] == ["o", "o|m", "other"]
    assert [name async for name, _ in graph.aget_subgraphs(recurse=True)] == ["o", "o|m", "other"]
    assert all(isinstance(found, Pregel) for _, found in graph.get_subgraphs(recurse=True))


@pytest.mark.parametrize(
    ("namespace", "found"),
    [
        ("o", ["o"]),
        ("other", ["other"]),
        ("o|m", ["o|m"]),
        ("oth", []),
        ("m", []),
        ("o|m|leaf", []),
        ("", []),
    ],
)
async def test_one_graph_is_found_by_its_whole_name(namespace: str, found: list[str]) -> None:
    graph = nested()

    assert [name for name, _ in graph.get_subgraphs(namespace)] == found
    assert [name for name, _ in graph.get_subgraphs(namespace, recurse=True)] == found
    assert [name async for name, _ in graph.aget_subgraphs(namespace)] == found


def test_a_node_that_is_a_graph_says_so_in_its_spec() -> None:
    class Outer(Log):
        private: int

    inner = chain(["i"]).compile()
    graph = StateGraph(Outer).add_node("c", inner).add_node("n", logs("n")).add_edge(START, "c").compile()

    child = graph.plan.nodes["c"].child
    assert child is not None
    assert (child.graph, child.takes, child.returns) == (inner, inner.plan.input_keys, inner.plan.output_keys)
    assert graph.plan.nodes["n"].child is None
