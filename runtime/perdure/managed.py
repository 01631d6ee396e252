"""Managed values: state keys that the run computes and never stores. Annotate a key with one of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Any, Protocol


class Scratch(Protocol):
    """The data of one superstep from which managed values are computed."""

    @property
    def remaining(self) -> int:
        """The number of supersteps that the recursion limit still allows, including this one."""
        ...


class ManagedValue(ABC):
    """A value that the engine computes whenever it builds a node's input."""

    @staticmethod
    @abstractmethod
    def get(scratch: Scratch) -> Any:
        """Compute the value for one superstep."""


class IsLastStepManager(ManagedValue):
    """A flag that is True in the last superstep that the recursion limit allows."""

    @staticmethod
    def get(scratch: Scratch) -> bool:
        return scratch.remaining == 1


class RemainingStepsManager(ManagedValue):
    """The number of supersteps that the recursion limit still allows, including this one."""

    @staticmethod
    def get(scratch: Scratch) -> int:
        return scratch.remaining


IsLastStep = Annotated[bool, IsLastStepManager]
RemainingSteps = Annotated[int, RemainingStepsManager]
