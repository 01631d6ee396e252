"""State keys whose value is not stored but known to the run: annotate a key with one of these."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Any, Protocol


class Scratch(Protocol):
    """What a managed value can be computed from."""

    @property
    def remaining(self) -> int:
        """How many supersteps the recursion limit still allows, this one included."""
        ...


class ManagedValue(ABC):
    """A value that is computed whenever a node's input is made."""

    @staticmethod
    @abstractmethod
    def get(scratch: Scratch) -> Any:
        """The value in the superstep that `scratch` describes."""


class IsLastStepManager(ManagedValue):
    """Whether the recursion limit allows no superstep after this one."""

    @staticmethod
    def get(scratch: Scratch) -> bool:
        return scratch.remaining == 1


class RemainingStepsManager(ManagedValue):
    """How many supersteps the recursion limit still allows, this one included."""

    @staticmethod
    def get(scratch: Scratch) -> int:
        return scratch.remaining


IsLastStep = Annotated[bool, IsLastStepManager]
RemainingSteps = Annotated[int, RemainingStepsManager]
