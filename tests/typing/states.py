"""Only type-checked: the types of a graph over each kind of state.

Errors that are expected are ignored for each checker by its code: when one goes, its ignore is unused,
which both checkers report.
"""

from __future__ import annotations

import operator
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired, TypedDict, assert_type

from pydantic import BaseModel

from perdure import Command, CompiledStateGraph, Pregel, Runtime, StateGraph, get_runtime


class Keys(TypedDict):
    x: int
    log: Annotated[list[str], operator.add]


@dataclass
class Fields:
    x: int = 0


class Model(BaseModel):
    x: int = 0


class Plain:
    x: int


class Question(TypedDict):
    question: str


class Answer(TypedDict):
    answer: str
    sources: NotRequired[list[str]]


@dataclass(frozen=True)
class User:
    name: str


# The parameters of a graph


def schemas_are_its_parameters() -> None:
    assert_type(StateGraph(Keys), StateGraph[Keys])
    assert_type(StateGraph(Keys), StateGraph[Keys, Any, Keys, Keys])
    assert_type(StateGraph(Fields), StateGraph[Fields, Any, Fields, Fields])
    assert_type(StateGraph(Model), StateGraph[Model, Any, Model, Model])
    assert_type(StateGraph(Keys, User), StateGraph[Keys, User])
    assert_type(StateGraph(Keys, context_schema=User), StateGraph[Keys, User, Keys, Keys])
    assert_type(StateGraph(Keys, input_schema=Question), StateGraph[Keys, Any, Question])
    assert_type(StateGraph(Keys, output_schema=Answer), StateGraph[Keys, Any, Keys, Answer])
    assert_type(
        StateGraph(Keys, User, input_schema=Question, output_schema=Answer),
        StateGraph[Keys, User, Question, Answer],
    )


def they_can_be_written_down() -> None:
    assert_type(StateGraph[Keys](Keys), StateGraph[Keys, Any, Keys, Keys])
    StateGraph[Keys, User](Keys, Keys)  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]
    StateGraph(Keys, input_shema=Question)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


def a_bare_value_is_a_state_of_any_type() -> None:
    assert_type(StateGraph(int), StateGraph[int])
    assert_type(StateGraph(Annotated[list[str], operator.add]), StateGraph[Any, Any, Any, Any])
    assert_type(StateGraph(int | str, User), StateGraph[Any, User, Any, Any])


def compiling_keeps_them() -> None:
    builder = StateGraph(Keys, User, input_schema=Question, output_schema=Answer)
    assert_type(builder.compile(), CompiledStateGraph[Keys, User, Question, Answer])
    assert_type(builder.compile().copy(), CompiledStateGraph[Keys, User, Question, Answer])
    assert_type(builder.compile().with_config(tags=["a"]), CompiledStateGraph[Keys, User, Question, Answer])


def takes_any_graph(graph: CompiledStateGraph, below: Pregel) -> None:
    assert_type(graph, CompiledStateGraph[Any, Any, Any, Any])
    assert_type(below, Pregel[Any, Any, Any, Any])


def takes_a_graph_over_keys(graph: CompiledStateGraph[Keys]) -> None:
    assert_type(graph, CompiledStateGraph[Keys, Any, Keys, Keys])


def graphs_fit_where_their_parameters_do() -> None:
    keys, fields = StateGraph(Keys, User).compile(), StateGraph(Fields).compile()
    takes_any_graph(keys, keys)
    takes_any_graph(fields, fields)
    takes_a_graph_over_keys(keys)
    takes_a_graph_over_keys(fields)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


class Assistant(CompiledStateGraph[Keys, User]):
    """A class of graphs of a user's own."""


async def subclasses_are_graphs_of_their_parameters(graph: Assistant) -> None:
    assert_type(await graph.ainvoke(None), Keys)
    takes_a_graph_over_keys(graph)


# An input and a result


async def a_typed_dict_comes_back_as_such() -> None:
    graph = StateGraph(Keys).compile()
    assert_type(await graph.ainvoke({"x": 1, "log": []}), Keys)
    assert_type(await graph.ainvoke({"x": 1}), Keys)
    assert_type(await graph.ainvoke(Command(update={"x": 1}, goto="a")), Keys)
    assert_type(await graph.ainvoke(None, {"configurable": {"thread_id": "t"}}, durability="sync"), Keys)
    assert_type(graph.invoke({"x": 1}), Keys)
    await graph.ainvoke("x")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await graph.ainvoke([("x", 1)])  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await graph.ainvoke()  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    graph.invoke(5)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    graph.astream(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def a_dataclass_comes_back_as_a_dict() -> None:
    graph = StateGraph(Fields).compile()
    assert_type(await graph.ainvoke(Fields(x=1)), dict[str, Any])
    assert_type(await graph.ainvoke({"x": 1}), dict[str, Any])
    assert_type(await graph.ainvoke(Command(update={"x": 1})), dict[str, Any])
    assert_type(await graph.ainvoke(None), dict[str, Any])
    assert_type(graph.invoke(Fields()), dict[str, Any])
    await graph.ainvoke(Model())  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await graph.ainvoke(1)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


async def a_model_comes_back_as_a_dict() -> None:
    graph = StateGraph(Model).compile()
    assert_type(await graph.ainvoke(Model(x=1)), dict[str, Any])
    assert_type(await graph.ainvoke({"x": 1}), dict[str, Any])
    assert_type(await graph.ainvoke(Command()), dict[str, Any])
    assert_type(await graph.ainvoke(None), dict[str, Any])
    assert_type(graph.invoke(Model()), dict[str, Any])
    await graph.ainvoke(Fields())  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


async def input_and_output_schemas_decide() -> None:
    graph = StateGraph(Fields, input_schema=Question, output_schema=Answer).compile()
    assert_type(await graph.ainvoke({"question": "why"}), Answer)
    assert_type(graph.invoke(Question(question="why")), Answer)
    await graph.ainvoke(Fields())  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    other = StateGraph(Keys, output_schema=Model).compile()
    assert_type(await other.ainvoke({"x": 1}), dict[str, Any])


async def a_result_of_some_keys_is_of_any_type() -> None:
    graph = StateGraph(Keys).compile()
    assert_type(await graph.ainvoke({"x": 1}, output_keys="x"), Any)
    assert_type(await graph.ainvoke({"x": 1}, output_keys=["x"]), Any)


async def a_bare_value_comes_back_as_any() -> None:
    graph = StateGraph(int).compile()
    assert_type(await graph.ainvoke(5), Any)
    await graph.ainvoke("5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(await StateGraph(Plain).compile().ainvoke({"x": 1}), Any)


async def a_graph_of_channels_takes_and_returns_any(graph: Pregel) -> None:
    assert_type(await graph.ainvoke(5), Any)
    assert_type(graph.invoke("x"), Any)
    assert_type(graph.astream(5, stream_mode="values"), AsyncIterator[Any])


async def options_are_checked() -> None:
    graph = StateGraph(Keys).compile()
    await graph.ainvoke({}, interrupt_before=["a"], interrupt_after=["b"], debug=True)
    await graph.ainvoke({}, durability="sometimes")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await graph.ainvoke({}, dept=True)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    assert_type(await graph.abatch([{"x": 1}, None, Command()], debug=True), list[Any])
    await graph.abatch([1])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    await graph.abatch([{}], dept=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


# The context


async def a_context_is_of_its_schema() -> None:
    graph = StateGraph(Keys, User).compile()
    assert_type(await graph.ainvoke({"x": 1}, context=User("ann")), Keys)
    assert_type(graph.invoke({"x": 1}, context={"name": "ann"}), Keys)
    await graph.ainvoke({"x": 1}, context="ann")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    graph.astream({"x": 1}, context=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await StateGraph(Keys).compile().ainvoke({"x": 1}, context=object())


async def greet(state: Keys, runtime: Runtime[User]) -> dict[str, list[str]]:
    assert_type(runtime.context, User)
    assert_type(runtime.override(store=None), Runtime[User])
    return {"log": [f"hello {runtime.context.name}"]}


async def shrug(state: Keys, runtime: Runtime) -> None:
    assert_type(runtime, Runtime[Any])
    assert_type(runtime.context, Any)
    assert_type(get_runtime(), Runtime[Any])
    assert_type(get_runtime(User), Runtime[User])
    assert_type(get_runtime(User).context, User)


def both_are_nodes() -> None:
    StateGraph(Keys, User).add_node(greet).add_node(shrug)
    assert_type(Runtime(context=User("ann")), Runtime[User])
