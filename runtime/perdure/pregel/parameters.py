"""The type parameters of graphs, and the types that are made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field
from typing import Any, ClassVar, Protocol, TypeAlias

from pydantic import BaseModel
from typing_extensions import TypeVar

from perdure.data import Command

StateT = TypeVar("StateT", default=Any)
"""The type of the state that nodes are given."""

ContextT = TypeVar("ContextT", default=Any)
"""The type of `runtime.context`."""

InputT = TypeVar("InputT", default=StateT)
"""The type of an input."""

OutputT_co = TypeVar("OutputT_co", default=StateT, covariant=True)
"""The type of the output schema; covariant, so that a method can ask what kind of schema it is."""

Given = TypeVar("Given")

GraphInput: TypeAlias = Given | Mapping[str, Any] | Command | None
"""The types that a graph can be invoked with: its input, a mapping of state keys, a Command, None."""

GraphContext: TypeAlias = Given | Mapping[str, Any] | None
"""The types that a run can be given as `context`: the context, or a mapping that it is made of."""

MappingSchema: TypeAlias = Mapping[str, object]
"""TypedDicts: schemas whose values are mappings themselves."""


class DataclassInstance(Protocol):
    """An object of a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


ClassSchema: TypeAlias = DataclassInstance | BaseModel
"""Schemas whose values are objects with a field for each state key."""
