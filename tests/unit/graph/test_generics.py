"""Classes with type parameters at run time: written down, derived from, copied and pickled."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any, Literal, TypedDict, get_args, get_type_hints

import pytest

from perdure import (
    START,
    Command,
    CompiledStateGraph,
    NodeBuilder,
    Pregel,
    Runtime,
    StateGraph,
)
from perdure.channels import LastValue
from perdure.constants import MISSING
from perdure.pregel.options import BatchOptions, RunOptions


class State(TypedDict):
    x: int


class User(TypedDict):
    name: str


class Builder(StateGraph[State, User]):
    """A builder of a user's own."""


class Graph(CompiledStateGraph[State]):
    """A class of graphs of a user's own."""


def double(state: State) -> State:
    return {"x": state["x"] * 2}


def compiled(builder: StateGraph[State, Any]) -> CompiledStateGraph[State, Any]:
    return builder.add_node(double).add_edge(START, "double").compile()


@pytest.mark.parametrize("cls", [StateGraph, CompiledStateGraph, Pregel])
@pytest.mark.parametrize(
    "given", [(State,), (State, User), (State, User, State), (State, User, State, State)]
)
def test_graphs_have_up_to_four_parameters(cls: Any, given: tuple[Any, ...]) -> None:
    assert get_args(cls[given])[: len(given)] == given
    with pytest.raises(TypeError, match="Too many"):
        cls[State, User, State, State, State]


def test_a_runtime_and_a_command_have_one() -> None:
    assert get_args(Runtime[User]) == (User,)
    assert get_args(Command[Literal["a", "b"]]) == (Literal["a", "b"],)


@pytest.mark.parametrize("make", [StateGraph, StateGraph[State], StateGraph[State, User], Builder])
def test_a_builder_made_by_a_class_with_parameters_builds(make: Any) -> None:
    builder = make(State, User)
    graph = compiled(builder)

    assert isinstance(builder, StateGraph)
    assert isinstance(graph, CompiledStateGraph)
    assert isinstance(graph, Pregel)
    assert graph.invoke({"x": 2}) == {"x": 4}


def test_a_builder_is_copied_and_pickled() -> None:
    builder = StateGraph[State, User](State, User).add_node(double).add_edge(START, "double")

    for again in (copy.copy(builder), copy.deepcopy(builder), pickle.loads(pickle.dumps(builder))):
        assert again.compile().invoke({"x": 2}) == {"x": 4}


def test_a_compiled_graph_is_copied() -> None:
    graph = compiled(StateGraph[State](State))

    for again in (copy.copy(graph), graph.copy(), graph.with_config(tags=["again"])):
        assert type(again) is CompiledStateGraph
        assert again.invoke({"x": 2}) == {"x": 4}


def test_a_class_of_graphs_of_a_users_own_runs() -> None:
    graph = Graph.from_plan(compiled(StateGraph(State)).plan)

    assert isinstance(graph, CompiledStateGraph)
    assert graph.invoke({"x": 3}) == {"x": 6}


def test_a_graph_of_channels_made_by_a_class_with_parameters_runs() -> None:
    graph = Pregel[int](
        nodes={"double": NodeBuilder().subscribe_only("x").do(lambda x: 2 * x).write_to("y")},
        channels={"x": LastValue(int), "y": LastValue(int)},
        input_channels="x",
        output_channels="y",
    )

    assert graph.invoke(21) == 42
    assert graph.copy({"debug": False}).invoke(21) == 42


def test_data_made_by_a_class_with_parameters_is_equal_and_pickled() -> None:
    command = Command[Literal["a"]](goto="a")
    runtime = Runtime[User](context={"name": "ann"})

    assert command == Command(goto="a")
    assert pickle.loads(pickle.dumps(command)) == command
    assert pickle.loads(pickle.dumps(command)).resume is MISSING
    assert pickle.loads(pickle.dumps(runtime)) == runtime == Runtime(context={"name": "ann"})


@pytest.mark.parametrize(
    "function",
    [
        StateGraph.__init__,
        StateGraph.add_node,
        StateGraph.add_sequence,
        StateGraph.add_conditional_edges,
        StateGraph.compile,
        Pregel.ainvoke,
        Pregel.abatch,
        Pregel.astream,
        Pregel.acontinue,
    ],
)
def test_annotations_can_be_evaluated(function: Any) -> None:
    assert "return" in get_type_hints(function)


def test_options_are_the_keywords_that_ainvoke_takes() -> None:
    parameters = inspect.signature(Pregel.ainvoke).parameters.values()
    keywords = {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}

    assert RunOptions.__annotations__.keys() == keywords - {"context", "output_keys"}
    assert BatchOptions.__annotations__.keys() == keywords
