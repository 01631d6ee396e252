"""The JSON schemas of a graph's input, output and context."""

from __future__ import annotations

import dataclasses
import operator
import warnings
from typing import Annotated, Any, NotRequired, TypedDict

import pytest
from pydantic import BaseModel, Field

from perdure.errors import GraphValidationError
from perdure.graph.state import StateGraph
from perdure.managed import RemainingSteps
from perdure.pregel.graph import Pregel
from perdure.pregel.plan.plan import Plan
from tests.unit.pregel.graphs import returns


class Opaque:
    """A class that JSON has no word for."""


class Inner(TypedDict):
    a: Annotated[int, Field(description="how many")]
    again: NotRequired[list[Outer]]


class Outer(TypedDict, total=False):
    inner: Inner
    many: list[Inner] | None
    opaque: Opaque
    remaining: RemainingSteps


class Model(BaseModel):
    x: int = 3
    remaining: RemainingSteps


@dataclasses.dataclass
class Data:
    x: int
    items: Annotated[list[int], operator.add] = dataclasses.field(default_factory=list)
    name: str = "n"


class Plain:
    x: int
    name: str = "n"


def compiled(schema: Any, context: Any = None, **more: Any) -> Pregel:
    builder = StateGraph(schema, context, **more).add_node("a", returns(None)).add_edge("__start__", "a")
    return builder.compile(name="Named")


def test_a_typed_dict_is_described_with_those_in_it() -> None:
    schema = compiled(Outer).get_input_jsonschema()

    assert schema["title"] == "Outer"
    assert set(schema["properties"]) == {"inner", "many", "opaque"}, "a managed value is nobody's to write"
    inner = schema["$defs"]["Inner"]
    assert inner["required"] == ["a"]
    assert inner["properties"]["a"] == {"description": "how many", "title": "A", "type": "integer"}
    assert inner["properties"]["again"]["items"] == {"additionalProperties": True, "type": "object"}


def test_a_model_is_described_as_pydantic_describes_it_without_managed_values() -> None:
    assert compiled(Model).get_input_jsonschema() == {
        "properties": {"x": {"default": 3, "title": "X", "type": "integer"}},
        "required": [],
        "title": "Model",
        "type": "object",
    }


@pytest.mark.parametrize(("schema", "keys"), [(Data, ["x", "items", "name"]), (Plain, ["x", "name"])])
def test_another_class_is_described_by_its_channels_and_defaults(schema: Any, keys: list[str]) -> None:
    made = compiled(schema).get_output_jsonschema()

    assert made["title"] == "NamedOutput"
    assert list(made["properties"]) == keys
    assert made["required"] == ["x"]
    assert made["properties"]["name"]["default"] == "n"


def test_a_bare_value_is_described_by_its_type() -> None:
    schema = compiled(Annotated[list[int], operator.add]).get_input_jsonschema()

    assert schema == {"title": "NamedInput", "type": "array", "items": {"type": "integer"}}


def test_input_and_output_are_described_each_by_its_own_schema() -> None:
    graph = compiled(Data, input_schema=Plain, output_schema=Data)

    assert list(graph.get_input_jsonschema()["properties"]) == ["x", "name"]
    assert list(graph.get_output_jsonschema()["properties"]) == ["x", "items", "name"]


@pytest.mark.parametrize("schema", [Data, Inner, Model])
def test_a_context_is_described(schema: Any) -> None:
    described = compiled(Data, schema).get_context_jsonschema()

    assert described is not None
    assert described["title"] == schema.__name__


def test_a_graph_without_a_context_schema_describes_none() -> None:
    assert compiled(Data).get_context_jsonschema() is None


def test_a_context_of_another_type_is_refused() -> None:
    with pytest.raises(GraphValidationError, match="Invalid context schema type: <class 'int'>"):
        compiled(Data, int).get_context_jsonschema()


def test_a_plan_that_was_made_by_hand_describes_nothing() -> None:
    plan: Plan = dataclasses.replace(compiled(Data).plan, json_schema=None)

    assert Pregel.from_plan(plan).get_input_jsonschema() == {}
    assert Pregel.from_plan(plan).get_output_jsonschema() == {}


def test_a_default_that_json_cannot_say_is_left_out_without_a_word() -> None:
    @dataclasses.dataclass
    class Calls:
        call: Any = print

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        schema = compiled(Calls).get_input_jsonschema()

    assert schema["properties"] == {"call": {"title": "Call"}}
    assert "required" not in schema
