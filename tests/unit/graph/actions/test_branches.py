"""The kinds of paths, and the destinations that their annotations declare."""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, Optional, TypedDict

import pytest

from perdure.config import RunnableConfig
from perdure.constants import END, START
from perdure.data import Command, Send
from perdure.errors import GraphValidationError, InvalidUpdateWarning, NodeSignatureError
from perdure.graph.actions.branches import branch_of, returns_several
from perdure.graph.state import StateGraph
from perdure.runtime import Runtime


class State(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    x: int


class Narrow(TypedDict, total=False):
    x: int


class Private(TypedDict, total=False):
    x: int
    secret: str


def logs(name: str, **more: Any) -> Callable[[Any], Any]:
    async def action(state: Any) -> Any:
        return {"log": [name], **more}

    return action


def forking(path: Any, path_map: Any = None, **more: Any) -> StateGraph:
    """Node a, and a conditional edge to b or c."""
    builder = StateGraph(State).add_node("a", logs("a", **more)).add_edge(START, "a")
    builder.add_node("b", logs("b")).add_node("c", logs("c"))
    return builder.add_conditional_edges("a", path, path_map)


async def ran(builder: StateGraph) -> list[str]:
    log: list[str] = (await builder.compile().ainvoke({}))["log"]
    return log


def route(state: Any) -> str:
    return "b"


async def route_later(state: Any) -> str:
    return "b"


def route_with(target: str, state: Any) -> str:
    return target


class Router:
    def __call__(self, state: Any) -> str:
        return "b"

    async def later(self, state: Any) -> str:
        return "b"


class AsyncRouter:
    async def __call__(self, state: Any) -> str:
        return "b"


class Runs:
    """As chains and models of other packages are run."""

    name = "runs"

    def invoke(self, state: Any) -> Literal["b", "c"]:
        return "b"


class RunsAsync(Runs):
    async def ainvoke(self, state: Any) -> Literal["b"]:
        return "b"

    def invoke(self, state: Any) -> Literal["b", "c"]:
        raise AssertionError("there is an ainvoke")

    def get_name(self) -> str:
        return "named"


class RunsUnnamed:
    def invoke(self, state: Any) -> str:
        return "b"


PATHS: list[tuple[Any, str]] = [
    (route, "route"),
    (route_later, "route_later"),
    (lambda state: "b", "condition"),
    (functools.partial(route_with, "b"), "route_with"),
    (functools.partial(lambda target, state: target, "b"), "condition"),
    (Router(), "Router"),
    (Router().later, "later"),
    (AsyncRouter(), "AsyncRouter"),
    (Runs(), "runs"),
    (RunsAsync(), "named"),
    (RunsUnnamed(), "RunsUnnamed"),
]


@pytest.mark.parametrize(("path", "name"), PATHS, ids=[f"{name}-{n}" for n, (_, name) in enumerate(PATHS)])
async def test_a_path_is_anything_that_can_be_called_or_invoked(path: Any, name: str) -> None:
    builder = forking(path)

    assert list(builder.branches["a"]) == [name]
    assert await ran(builder) == ["a", "b"]


async def test_a_sync_path_runs_on_the_thread_of_the_loop_though_its_node_does_not() -> None:
    threads: list[int] = []

    def node(state: Any) -> None:
        threads.append(threading.get_ident())

    def path(state: Any) -> str:
        threads.append(threading.get_ident())
        return END

    class Invoked:
        def invoke(self, state: Any) -> str:
            return path(state)

    builder = StateGraph(State).add_node("n", node).add_edge(START, "n")
    await builder.add_conditional_edges("n", path).add_conditional_edges("n", Invoked()).compile().ainvoke({})
    in_node, *in_paths = threads

    assert in_node != threading.get_ident()
    assert in_paths == [threading.get_ident()] * 2


async def test_a_path_asks_by_name_for_what_a_node_can_ask_for() -> None:
    def path(state: Any, config: RunnableConfig, *, runtime: Runtime[str], store: Any) -> str:
        return "b" if (config["metadata"]["langgraph_node"], runtime.context, store) == ("a", "!", 7) else END

    builder = StateGraph(State).add_node("a", logs("a")).add_node("b", logs("b")).add_edge(START, "a")
    builder.add_conditional_edges("a", path, ["b", END])
    graph = builder.compile(store=7)

    assert (await graph.ainvoke({}, context="!"))["log"] == ["a", "b"]


def test_a_path_that_asks_for_something_else_is_refused() -> None:
    def path(state: Any, weather: str) -> str:
        return END

    with pytest.raises(NodeSignatureError, match=r"conditional edge of 'a' .*weather.*Beside the state"):
        StateGraph(State).add_node("a", logs("a")).add_conditional_edges("a", path)


@pytest.mark.parametrize("path", [5, None, object()])
def test_what_can_neither_be_called_nor_invoked_is_refused(path: Any) -> None:
    with pytest.raises(GraphValidationError, match=r"conditional edge of 'a'.* cannot be called"):
        forking(path)


def test_a_path_that_yields_is_refused() -> None:
    def path(state: Any) -> Any:
        yield "b"

    with pytest.raises(NodeSignatureError, match="The conditional edge of 'a' is a generator"):
        forking(path)


async def test_a_map_leads_by_what_is_returned_and_a_list_by_name() -> None:
    assert await ran(forking(lambda state: 1, {1: "c", 2: "b"})) == ["a", "c"]
    assert await ran(forking(lambda state: ["b", "c"], ["b", "c"])) == ["a", "b", "c"]


def test_a_map_that_is_one_name_is_refused() -> None:
    with pytest.raises(GraphValidationError, match=r"is a mapping or a list of node names; got 'b'"):
        forking(route, "b")


# What annotations declare


def to_one(state: Any) -> Literal["b", "__end__"]:
    return "b"


async def to_one_later(state: Any) -> Literal["b", "__end__"]:
    return "b"


def maybe(state: Any) -> Optional[Literal["b"]]:  # noqa: UP045  # as it is often written
    return "b"


def maybe_new(state: Any) -> Literal["b"] | None:
    return "b"


def either(state: Any) -> Literal["b"] | Literal["c"]:  # as it is often written
    return "b"


def some(state: Any) -> list[Literal["b", "c"]]:
    return ["b"]


def one_or_some(state: Any) -> Literal["b"] | Sequence[Literal["c"]]:
    return "b"


def pair(state: Any) -> tuple[Literal["b", "c"], ...]:
    return ("b",)


def beside_sends(state: Any) -> Literal["b"] | list[Send]:
    return "b"


def any_name(state: Any) -> Literal["b"] | str:
    return "b"


def unknown(state: Any) -> Nowhere:  # type: ignore[name-defined]  # noqa: F821
    return None


class DeclaresByCall:
    def __call__(self, state: Any) -> Literal["b"]:
        return "b"


DECLARED: list[tuple[Any, set[str] | None]] = [
    (to_one, {"b", END}),
    (to_one_later, {"b", END}),
    (maybe, {"b"}),
    (maybe_new, {"b"}),
    (either, {"b", "c"}),
    (some, {"b", "c"}),
    (one_or_some, {"b", "c"}),
    (pair, {"b", "c"}),
    (functools.partial(to_one), {"b", END}),
    (DeclaresByCall(), {"b"}),
    (Runs(), {"b", "c"}),
    (RunsAsync(), {"b"}),
    (beside_sends, None),
    (any_name, None),
    (unknown, None),
    (route, None),
    (lambda state: "b", None),
]


@pytest.mark.parametrize(("path", "ends"), DECLARED)
def test_literals_in_the_return_annotation_declare_where_a_path_leads(
    path: Any, ends: set[str] | None
) -> None:
    declared = branch_of("a", path, None).ends

    assert (declared if declared is None else set(declared)) == ends


async def test_a_path_that_declares_an_optional_destination_must_still_return_one() -> None:
    def path(state: Any) -> Literal["b"] | None:
        return None

    with pytest.raises(Exception, match="Branch did not return a valid destination"):
        await forking(path).compile().ainvoke({})


@pytest.mark.parametrize(
    ("returned", "several"),
    [(list[str], True), (list, True), (Sequence[Send], True), (str | list[Send], True), (str, False)],
)
def test_an_annotated_list_says_that_several_are_chosen(returned: Any, several: bool) -> None:
    assert returns_several(returned) is several


# What a path sees


async def seen_by(path_schema: Any, **more: Any) -> Any:
    """Return the input of a path with this annotation."""
    seen: list[Any] = []

    def path(state: Any) -> str:
        seen.append(state)
        return END

    if path_schema is not None:
        path.__annotations__["state"] = path_schema
    await forking(path, **more).compile().ainvoke({"x": 1})
    [given] = seen
    return given


async def test_a_path_sees_the_keys_of_the_class_that_it_is_annotated_with() -> None:
    assert await seen_by(State) == {"log": ["a"], "x": 1}
    assert await seen_by(Narrow) == {"x": 1}
    assert await seen_by(Narrow, x=2) == {"x": 2}


@pytest.mark.parametrize("schema", [None, Any, dict])
async def test_other_annotations_show_the_whole_state(schema: Any) -> None:
    assert await seen_by(schema) == {"log": ["a"], "x": 1}


async def test_the_schema_of_a_path_adds_its_keys_to_the_state() -> None:
    def path(state: Private) -> str:
        return END

    builder = forking(path, secret="s")

    assert builder.branches["a"]["path"].input_schema is Private
    assert "secret" in builder.channels
    assert await seen_by(Private, secret="s") == {"x": 1, "secret": "s"}
    assert await builder.compile().ainvoke({}) == {"log": ["a"]}, "it is no key of the output"


async def test_a_path_without_annotation_sees_what_the_node_returned_beside_the_state() -> None:
    with pytest.warns(InvalidUpdateWarning, match="Node 'a' wrote to 'where', .* the write is dropped"):
        assert await seen_by(None, where=["b"], x=7) == {"log": ["a"], "x": 7, "where": ["b"]}


async def test_a_path_with_an_annotation_does_not() -> None:
    with pytest.warns(InvalidUpdateWarning, match="'elsewhere'"):
        assert await seen_by(State, elsewhere="b") == {"log": ["a"], "x": 1}


async def test_a_path_that_changes_what_the_node_returned_beside_the_state_changes_a_copy() -> None:
    kept = ["b"]

    async def node(state: Any) -> Any:
        return {"aside": kept}

    def path(state: Any) -> str:
        state["aside"].append("more")
        return END

    builder = StateGraph(State).add_node("n", node).add_edge(START, "n").add_conditional_edges("n", path)
    with pytest.warns(InvalidUpdateWarning, match="'aside'"):
        await builder.compile().ainvoke({})

    assert kept == ["b"]


async def test_a_conditional_edge_from_the_start_sees_the_state_after_the_input() -> None:
    seen: list[Any] = []

    def path(state: Any) -> str:
        seen.append(state)
        return "b"

    builder = StateGraph(State).add_node("b", logs("b")).add_conditional_edges(START, path)
    await builder.compile().ainvoke({"x": 3})

    assert seen == [{"log": [], "x": 3}]


# Where everything leads together


async def test_edges_a_conditional_edge_and_a_goto_of_one_node_all_fire_together() -> None:
    async def goes(state: Any) -> Any:
        return Command(update={"log": ["a"]}, goto=["d", Send("c", {})])

    builder = StateGraph(State).add_node("a", goes).add_edge(START, "a")
    for name in "bcde":
        builder.add_node(name, logs(name))
    builder.add_edge("a", "e").add_conditional_edges("a", route)

    assert await ran(builder) == ["a", "b", "d", "e", "c"]
