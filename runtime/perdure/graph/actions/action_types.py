"""The types of what a StateGraph runs: nodes' actions, and the paths of conditional edges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Concatenate, TypeAlias, TypeVar

from perdure.pregel.parameters import ClassSchema, MappingSchema
from perdure.pregel.plan.runnables import Invokes, InvokesAsync

Runs: TypeAlias = Callable[..., object] | Invokes | InvokesAsync | Mapping[str, "Runs"]
"""An action of which nothing is known but that it can be run; several, by key, run side by side."""

Path: TypeAlias = Callable[..., object] | Invokes | InvokesAsync
"""A function or object that says where a conditional edge leads."""

Given = TypeVar("Given")
Own = TypeVar("Own", bound=MappingSchema | ClassSchema)

Action: TypeAlias = (
    Callable[Concatenate[Given, ...], object]
    | Callable[Concatenate[dict[str, Any], ...], object]
    | Callable[Concatenate[Own, ...], object]
    | Invokes
    | InvokesAsync
    | Mapping[str, Runs]
)
"""A node's action: its first parameter takes the state, a mapping, or a schema of its own.

Parameters after the first are asked for by name; a type checker lets them pass.
"""
