"""The writes and destinations in a node's return value."""

from __future__ import annotations

import collections
import types
import warnings
from collections.abc import Callable
from typing import Any, Literal, TypedDict

import pytest

from perdure.constants import END, START
from perdure.data import Command, Send
from perdure.errors import InvalidUpdateError, InvalidUpdateWarning
from perdure.graph.state import StateGraph
from perdure.pregel.graph import Pregel
from tests.unit.pregel.graphs import Log, chain, logs, returns


def one(result: Any, name: str = "LangGraph") -> Pregel:
    """Build a graph whose node `a` returns `result`, with nodes `b` and `c` that log."""
    builder = chain(["a"], {"a": returns(result)})
    return builder.add_node("b", logs("b")).add_node("c", logs("c")).compile(name=name)


MAPPINGS: list[Any] = [
    {"x": 1},
    collections.OrderedDict(x=1),
    types.MappingProxyType({"x": 1}),
    Command(update={"x": 1}),
    Command(update=[("x", 1)]),
    Command(update=(["x", 1],)),
    [Command(update={"x": 0}), {"x": 1}, None],
]


@pytest.mark.parametrize("result", MAPPINGS, ids=repr)
async def test_a_mapping_is_an_update(result: Any) -> None:
    graph = one(result)
    if isinstance(result, list):  # two writes to one key of one task are two writes
        with pytest.raises(InvalidUpdateError, match="'x'"):
            await graph.ainvoke({})
    else:
        assert await graph.ainvoke({}) == {"log": [], "x": 1}


@pytest.mark.parametrize("result", [None, {}, Command(), Command(update={}), Command(update=[])], ids=repr)
async def test_nothing_is_an_update_that_changes_nothing(result: Any) -> None:
    assert await one(result).ainvoke({"x": 1}) == {"log": [], "x": 1}


@pytest.mark.parametrize("result", [3, "x", [], [{"x": 1}], 1.5, object(), [1, 2], {"x"}, True])
async def test_a_node_that_returns_no_mapping_is_refused_by_name(result: object) -> None:
    with pytest.raises(
        InvalidUpdateError, match=r"^Expected dict, got .* from node 'a': .* not \w+\."
    ) as refused:
        await one(result).ainvoke({})

    assert any("'a'" in note for note in refused.value.__notes__)


async def test_a_long_value_is_shown_shortened() -> None:
    with pytest.raises(InvalidUpdateError) as refused:
        await one("y" * 1000).ainvoke({})

    assert len(str(refused.value)) < 250


@pytest.mark.parametrize("update", [5, "x", [1], [("x", 1, 2)]])
async def test_a_command_whose_update_is_none_is_refused(update: object) -> None:
    with pytest.raises(InvalidUpdateError, match=r"Expected dict, got .* from node 'a'"):
        await one(Command(update=update)).ainvoke({})


async def test_a_misspelt_key_warns_once_with_the_nearest_one() -> None:
    builder = chain(["a", "b"], {"a": returns({"lgo": ["a"]}), "b": returns({"lgo": ["b"], "x": 1})})
    graph = builder.compile(name="misspelt")
    with pytest.warns(InvalidUpdateWarning) as warned:
        assert await graph.ainvoke({}) == {"log": [], "x": 1}

    assert [str(w.message).split("'")[1] for w in warned] == ["a", "b"]
    assert str(warned[0].message) == (
        "Node 'a' wrote to 'lgo', which is not a key of the state; the write is dropped. Did you mean 'log'?"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await graph.ainvoke({})


async def test_a_key_like_no_other_warns_with_those_that_exist() -> None:
    with pytest.warns(InvalidUpdateWarning, match=r"Node 'a' wrote to 'qwertz'.*Known: log, x, y\."):
        await one({"qwertz": 1}, "no other").ainvoke({})


async def test_an_input_key_that_does_not_exist_warns() -> None:
    with pytest.warns(InvalidUpdateWarning, match=r"The input wrote to 'lgo'.*Did you mean 'log'"):
        await one(None, "input key").ainvoke({"lgo": []})


async def test_an_input_key_that_only_the_state_has_warns_with_those_of_the_input() -> None:
    class Narrow(TypedDict):
        y: str

    class Nothing(TypedDict): ...

    for schema, known in ((Narrow, "y"), (Nothing, "none")):
        builder = StateGraph(Log, input_schema=schema).add_node("a", logs("a")).add_edge(START, "a")
        with pytest.warns(InvalidUpdateWarning) as warned:
            await builder.compile(name=f"input of {known}").ainvoke({"x": 1})

        assert str(warned[0].message) == (
            f"The input wrote to 'x', which is not a key of the input; the write is dropped. Known: {known}."
        )


async def test_a_key_that_is_no_text_warns() -> None:
    with pytest.warns(InvalidUpdateWarning, match="Node 'a' wrote to 5,"):
        await one({5: 1}, "no text").ainvoke({})


async def test_an_input_writes_only_keys_of_the_input_schema() -> None:
    class Narrow(TypedDict):
        x: int

    graph = (
        StateGraph(Log, input_schema=Narrow)
        .add_node("a", logs("a"))
        .add_edge(START, "a")
        .compile(name="narrow")
    )
    with pytest.warns(InvalidUpdateWarning, match="The input wrote to 'y'"):
        assert await graph.ainvoke({"x": 1, "y": 2}) == {"log": ["a"], "x": 1}


async def test_control_channels_cannot_be_written_as_state_keys() -> None:
    with pytest.warns(InvalidUpdateWarning, match="branch:to:b"):
        assert await one({"branch:to:b": None}, "control").ainvoke({}) == {"log": []}


# Going somewhere


@pytest.mark.parametrize(
    ("result", "log"),
    [
        (Command(goto="b"), ["b"]),
        (Command(goto=["b", "c"]), ["b", "c"]),
        (Command(goto=("c", "b")), ["b", "c"]),
        (Command(goto=END), []),
        (Command(goto=["b", END]), ["b"]),
        (Command(goto=Send("b", {})), ["b"]),
        (Command(goto=[Send("b", {}), "c", Send("b", {})]), ["c", "b", "b"]),
        (Send("b", {}), ["b"]),
        ([Send("b", {}), Send("c", {})], ["b", "c"]),
        ([Command(goto="b"), Command(goto="c")], ["b", "c"]),
        ([{"log": ["a"]}, Send("b", {})], ["a", "b"]),
        (Command(update={"log": ["a"]}, goto="b"), ["a", "b"]),
        (Command(goto="b", update=[("log", ["a"]), ("log", ["A"])]), ["a", "A", "b"]),
    ],
    ids=repr,
)
async def test_a_result_that_goes_somewhere(result: Any, log: list[str]) -> None:
    assert (await one(result).ainvoke({}))["log"] == log


async def test_edges_fire_beside_a_goto() -> None:
    builder = chain(["a", "b"], {"a": returns(Command(update={"log": ["a"]}, goto="c"))}).add_node(
        "c", logs("c")
    )

    assert (await builder.compile().ainvoke({}))["log"] == ["a", "b", "c"]


UNKNOWN: list[tuple[Any, str]] = [
    (Command(goto="bb"), r"Command\.goto of 'a' goes to 'bb', which is not a node\. Did you mean 'b'\?"),
    (Command(goto=[Send("bb", {})]), r"Command\.goto of 'a' goes to 'bb', which is not a node\."),
    (Send("bb", {}), r"The return value of 'a' goes to 'bb', which is not a node\."),
    (Command(goto="qwertz"), r"Known: a, b, c\."),
    (Command(goto=START), "goes to '__start__', which is not a node"),
    (Command(goto=Send(END, {})), "Cannot send a packet to the END node"),
    (Send(END, {}), "Cannot send a packet to the END node"),
    (Command(goto=[5]), r"Command\.goto of 'a' has the destination 5\."),
    (Command(goto=5), r"Command\.goto of 'a' has the destination 5\."),
    (Command(goto=None), r"Command\.goto of 'a' has the destination None\."),
    (Command(goto=[None]), r"Command\.goto of 'a' has the destination None\."),
]


@pytest.mark.parametrize(("result", "message"), UNKNOWN, ids=[repr(result) for result, _ in UNKNOWN])
async def test_going_to_what_is_not_a_node_is_refused(result: Any, message: str) -> None:
    with pytest.raises(InvalidUpdateError, match=message) as refused:
        await one(result).ainvoke({})

    assert any("'a'" in note for note in refused.value.__notes__)


# Conditional edges


def branching(path: Callable[[Any], Any], path_map: Any = None, update: Any = None) -> Pregel:
    builder = chain(["a"], {"a": returns({"log": ["a"]} if update is None else update)})
    builder.add_node("b", logs("b")).add_node("c", logs("c"))
    return builder.add_conditional_edges("a", path, path_map).compile()


def literal(state: Log) -> Literal["b", "__end__"]:
    return "b"


async def later(state: Log) -> str:
    return "b"


PATHS: list[tuple[Callable[[Any], Any], Any, list[str]]] = [
    (lambda s: "b", None, ["b"]),
    (lambda s: END, None, []),
    (lambda s: [], None, []),
    (lambda s: ["b", "c"], None, ["b", "c"]),
    (lambda s: ("c", END), None, ["c"]),
    (lambda s: True, {True: "b", False: "c"}, ["b"]),
    (lambda s: [True, False], {True: "b", False: "c"}, ["b", "c"]),
    (lambda s: None, {None: "b"}, ["b"]),
    (lambda s: "stop", {"stop": END}, []),
    (lambda s: "c", ["b", "c"], ["c"]),
    (lambda s: END, ["b", END], []),
    (literal, None, ["b"]),
    (later, None, ["b"]),
    (lambda s: Send("b", {}), None, ["b"]),
    (lambda s: [Send("c", {}), "b", Send("b", {})], None, ["b", "c", "b"]),
    (lambda s: [Send("c", {}), 1], {1: "b"}, ["b", "c"]),
]


@pytest.mark.parametrize(("path", "path_map", "log"), PATHS)
async def test_a_conditional_edge(path: Callable[[Any], Any], path_map: Any, log: list[str]) -> None:
    assert (await branching(path, path_map).ainvoke({}))["log"] == ["a", *log]


WRONG_PATHS: list[tuple[Callable[[Any], Any], Any, str]] = [
    (lambda s: None, None, "Branch did not return a valid destination"),
    (lambda s: START, None, "Branch did not return a valid destination"),
    (lambda s: ["b", None], None, "Branch did not return a valid destination"),
    (
        lambda s: "bb",
        None,
        "Conditional edge 'condition' of 'a' goes to 'bb', which is not a node. Did you mean 'b'",
    ),
    (lambda s: 5, None, "Conditional edge 'condition' of 'a' has the destination 5."),
    (
        lambda s: "d",
        {"e": "b"},
        "Conditional edge 'condition' of 'a' returned 'd', which is not in its path_map",
    ),
    (lambda s: END, ["b"], "which is not in its path_map. Return one of: 'b'"),
    (lambda s: {"b": 1}, ["b"], "which is not in its path_map. Return one of: 'b'"),
    (lambda s: Send(END, {}), None, "Cannot send a packet to the END node"),
    (lambda s: Send("bb", {}), None, "goes to 'bb', which is not a node"),
]


@pytest.mark.parametrize(("path", "path_map", "message"), WRONG_PATHS)
async def test_a_path_that_leads_nowhere_fails_its_node(
    path: Callable[[Any], Any], path_map: Any, message: str
) -> None:
    with pytest.raises(InvalidUpdateError) as refused:
        await branching(path, path_map).ainvoke({})

    assert message in str(refused.value)
    assert any("'a'" in note for note in refused.value.__notes__)


async def test_a_conditional_edge_leads_from_the_start() -> None:
    builder = StateGraph(Log).add_node("b", logs("b")).add_node("c", logs("c"))
    graph = builder.add_conditional_edges(START, lambda s: "b" if s["x"] else "c").compile()

    assert (await graph.ainvoke({"x": 1}))["log"] == ["b"]
    assert (await graph.ainvoke({"x": 0}))["log"] == ["c"]


async def test_several_branches_and_edges_of_a_node_all_fire() -> None:
    def other(state: Log) -> str:
        return "c"

    builder = chain(["a", "d"]).add_node("b", logs("b")).add_node("c", logs("c"))
    builder.add_conditional_edges("a", lambda s: "b").add_conditional_edges("a", other)

    assert (await builder.compile().ainvoke({}))["log"] == ["a", "b", "c", "d"]


async def test_a_path_sees_its_own_nodes_writes_reduced_and_those_of_no_sibling() -> None:
    seen: list[Any] = []

    def path(state: Log) -> str:
        seen.append(state)
        return END

    builder = chain(["a"], {"a": returns({"log": ["a"], "x": 1})})
    builder.add_node("b", returns({"log": ["b"], "y": 1})).add_edge(START, "b")
    graph = builder.add_conditional_edges("a", path).compile()

    assert await graph.ainvoke({"log": ["in"]}) == {"log": ["in", "a", "b"], "x": 1, "y": 1}
    assert seen == [{"log": ["in", "a"], "x": 1}]


async def test_what_a_path_does_to_the_state_it_sees_changes_nothing() -> None:
    def path(state: Log) -> str:
        state["log"].append("path")
        state["x"] = 100
        return END

    given = {"log": ["in"], "y": ["deep"]}

    assert await branching(path).ainvoke(given) == {"log": ["in", "a"], "y": ["deep"]}
    assert given == {"log": ["in"], "y": ["deep"]}


async def test_a_path_runs_after_a_send_too() -> None:
    builder = chain(["a"], {"a": returns([Send("b", {"n": n}) for n in range(3)])})
    builder.add_node("b", logs("b")).add_node("c", logs("c")).add_conditional_edges("b", lambda s: "c")

    assert (await builder.compile().ainvoke({}))["log"] == ["b", "b", "b", "c"]
