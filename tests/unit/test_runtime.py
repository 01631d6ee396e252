"""Questions of a node to its run: in its body, below it, in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import pytest

from perdure.constants import START
from perdure.errors import NotInNodeError
from perdure.graph.state import StateGraph
from perdure.pregel.graph import Pregel
from perdure.runtime import (
    ExecutionInfo,
    Runtime,
    ServerInfo,
    get_config,
    get_runtime,
    get_store,
    get_stream_writer,
)
from tests.unit.pregel.graphs import Log

ASKED: list[Callable[[], Any]] = [get_runtime, get_config, get_store, get_stream_writer]


def graph_of(action: Any) -> Pregel:
    return StateGraph(Log).add_node("a", action).add_edge(START, "a").compile()


def in_a_thread(function: Callable[[], object]) -> None:
    started = threading.Thread(target=function)
    started.start()
    started.join(10)
    assert not started.is_alive()


# Asking


@pytest.mark.parametrize("ask", ASKED)
def test_outside_of_a_node_there_is_nobody_to_ask(ask: Callable[[], Any]) -> None:
    with pytest.raises(
        NotInNodeError, match=f"Called {ask.__name__} outside of a runnable context"
    ) as raised:
        ask()

    assert isinstance(raised.value, RuntimeError)
    assert "in a copy of the node's contextvars" in str(raised.value)


@pytest.mark.parametrize("sync", [True, False])
async def test_code_below_a_node_finds_its_run(sync: bool) -> None:
    seen: list[Any] = []

    def deep() -> None:
        seen.extend(ask() for ask in ASKED)

    async def body(state: Log) -> None:
        deep()

    def sync_body(state: Log) -> None:
        deep()

    graph = graph_of(sync_body if sync else body).copy({"store": "the store"})
    await graph.ainvoke({}, {"configurable": {"user": "u"}}, context="the context")

    runtime, config, store, writer = seen
    assert runtime.context == "the context"
    assert config["configurable"]["user"] == "u"
    assert store == runtime.store == "the store"
    assert writer == runtime.stream_writer


async def test_a_thread_that_a_node_starts_finds_the_run_through_in_thread() -> None:
    seen: list[Any] = []

    async def body(state: Log, runtime: Runtime[Any]) -> None:
        def look(name: str, *, last: str) -> str:
            seen.append((name, last, get_config()["metadata"]["langgraph_node"]))
            get_stream_writer()(name)
            return name

        carried = runtime.in_thread(look)
        assert carried.__name__ == "look"
        for name in ("one", "two"):  # the same function, in two threads
            await anyio.to_thread.run_sync(in_a_thread, partial(carried, name, last="l"))
        assert carried("here", last="l") == "here"

    events = [event async for event in graph_of(body).astream({}, stream_mode="custom")]

    assert seen == [("one", "l", "a"), ("two", "l", "a"), ("here", "l", "a")]
    assert events == ["one", "two", "here"]


async def test_a_thread_without_the_nodes_context_is_told_why_it_finds_nothing() -> None:
    errors: list[BaseException] = []

    def body(state: Log) -> None:
        def look() -> None:
            try:
                get_config()
            except NotInNodeError as error:
                errors.append(error)

        in_a_thread(look)

    await graph_of(body).ainvoke({})

    assert len(errors) == 1


async def test_a_writer_may_be_handed_to_a_thread() -> None:
    def body(state: Log, writer: Any, runtime: Runtime[Any]) -> None:
        in_a_thread(lambda: writer("by the writer"))
        in_a_thread(lambda: runtime.stream_writer("by the runtime"))

    events = [event async for event in graph_of(body).astream({}, stream_mode="custom")]

    assert events == ["by the writer", "by the runtime"]


async def test_what_happens_in_a_carried_function_stays_in_its_thread() -> None:
    seen: list[Any] = []

    async def body(state: Log, runtime: Runtime[Any]) -> None:
        async def inner(state: Log) -> None:
            seen.append(get_config()["metadata"]["langgraph_node"])

        carried = runtime.in_thread(lambda: anyio.run(graph_of(inner).ainvoke, {}))
        await anyio.to_thread.run_sync(in_a_thread, carried)
        seen.append(get_config()["metadata"]["langgraph_node"])

    await StateGraph(Log).add_node("outer", body).add_edge(START, "outer").compile().ainvoke({})

    assert seen == ["a", "outer"]


# The object itself


INFO = ExecutionInfo(checkpoint_id="c", checkpoint_ns="n", task_id="t")


def test_a_runtime_of_no_task_offers_nothing_and_does_not_fail() -> None:
    runtime: Runtime[None] = Runtime()

    runtime.stream_writer("event")
    runtime.heartbeat()
    assert (runtime.context, runtime.store, runtime.previous) == (None, None, None)
    assert (runtime.execution_info, runtime.server_info) == (None, None)


def test_a_runtime_is_frozen_and_takes_keywords_only() -> None:
    with pytest.raises(AttributeError):
        Runtime().context = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        Runtime("context")  # type: ignore[call-arg]


def test_override_replaces_what_it_names() -> None:
    runtime = Runtime(context="c", store="s", execution_info=INFO).override(context="d", store=None)

    assert runtime == Runtime(context="d", execution_info=INFO)


def test_merge_takes_what_the_other_has() -> None:
    events: list[Any] = []
    one = Runtime(context="c", store="s", execution_info=INFO, stream_writer=events.append)
    merged = one.merge(Runtime(context="d", previous=0))

    assert merged == Runtime(
        context="d", store="s", previous=0, execution_info=INFO, stream_writer=events.append
    )
    assert Runtime[Any]().merge(one) == one


def test_execution_info_is_patched_where_there_is_any() -> None:
    patched = Runtime[None](execution_info=INFO).patch_execution_info(node_attempt=2)

    assert patched.execution_info == ExecutionInfo(
        checkpoint_id="c", checkpoint_ns="n", task_id="t", node_attempt=2
    )
    with pytest.raises(NotInNodeError, match="belongs to no task, so it has no execution_info to change"):
        Runtime[None]().patch_execution_info(node_attempt=2)


@pytest.mark.parametrize(
    ("configurable", "info"),
    [
        ({}, None),
        ({"thread_id": "t"}, None),
        ({"assistant_id": "a"}, ServerInfo(assistant_id="a")),
        ({"graph_id": "g", "langgraph_auth_user": {"id": 1}}, ServerInfo(graph_id="g", user={"id": 1})),
    ],
)
def test_a_server_is_known_by_what_it_left_in_the_configurable(configurable: Any, info: Any) -> None:
    assert ServerInfo.found_in(configurable) == info
