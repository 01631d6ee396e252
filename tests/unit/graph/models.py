"""A state that pydantic models declare, and graphs over it."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, field_validator, model_validator

from perdure.constants import START
from perdure.graph.state import StateGraph
from perdure.pregel.graph import Pregel

Action = Callable[[Any], Any]


class Item(BaseModel):
    a: int


def keep(left: list[int], right: list[int]) -> list[int]:
    return [*left, *right]


class State(BaseModel):
    name: str = "nobody"
    count: int = 0
    item: Item | None = None
    items: Annotated[list[Item], operator.add] = Field(default_factory=list)
    kept: Annotated[list[str], keep] = Field(default_factory=list)
    loose: Annotated[list[int], lambda left, right: left + right] = Field(default_factory=list)

    @field_validator("name")
    @classmethod
    def normal(cls, value: str) -> str:
        return value.strip().lower()


def returns(update: Any) -> Action:
    async def node(state: Any) -> Any:
        return update

    return node


def graph(*updates: Any, schema: Any = State, seen: list[Any] | None = None, **more: Any) -> Pregel:
    """Build nodes that return `updates` in turn, and a last one that records its input."""
    builder = StateGraph(schema, **more)

    async def look(state: Any) -> None:
        if seen is not None:
            seen.append(state)

    before = START
    for number, update in enumerate(updates):
        builder.add_node(f"n{number}", update if callable(update) else returns(update))
        builder.add_edge(before, f"n{number}")
        before = f"n{number}"
    return builder.add_node("look", look).add_edge(before, "look").compile(name="checked")


class Range(BaseModel):
    low: int
    high: int

    @model_validator(mode="after")
    def ordered(self) -> Self:
        if self.low > self.high:
            raise ValueError("low is above high")
        return self
