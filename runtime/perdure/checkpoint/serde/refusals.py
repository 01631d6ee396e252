"""Refusals of values that cannot be stored: their place, their type, and what to store instead."""

from __future__ import annotations

import dataclasses
import enum
import re
from collections import deque
from fractions import Fraction
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Any, Final

_SHOWN_STEPS: Final = 8

_INSTEAD: Final[dict[type, str]] = {
    bytearray: "bytes(value)",
    memoryview: "bytes(value)",
    range: "list(value)",
    deque: "list(value)",
    slice: "its start, stop and step",
    Fraction: "its numerator and denominator",
    re.Pattern: "its pattern and flags",
    IPv4Address: "str(value)",
    IPv6Address: "str(value)",
    IPv4Network: "str(value)",
    IPv6Network: "str(value)",
}


class RefusedError(Exception):
    """The refusal of a value that cannot be stored.

    It is raised at the value, with its depth unknown. Each container that it passes on the way out adds a
    step to the path, and itself to the containers passed.

    Attributes:
        reason: a clause that says what is wrong with the value, which is its subject.
        remedy: an imperative that says what to do about it.
    """

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason, remedy)
        self.reason = reason
        self.remedy = remedy
        self._steps: list[str] = []
        self._passed: list[Any] = []

    def leave(self, container: Any, step: str) -> None:
        """Add the step by which `container` leads to the value."""
        self._steps.append(step)
        self._passed.append(container)

    def __str__(self) -> str:
        if len(self._passed) > len({id(container) for container in self._passed}):
            return self._self_reference()
        steps = self._steps[::-1]
        path = "".join(steps[:_SHOWN_STEPS]) + ("…" if len(steps) > _SHOWN_STEPS else "")
        return f"the value{f' at {path}' if path else ''} {self.reason}; {self.remedy}"

    def _self_reference(self) -> str:
        first_seen: dict[int, int] = {}
        for depth, container in enumerate(reversed(self._passed)):
            if id(container) in first_seen:
                break
            first_seen[id(container)] = depth
        path = "".join(self._steps[::-1][:depth])
        return f"the value at {path} contains itself; store ids in place of references"


def index_step(index: int) -> str:
    return f"[{index}]"


def key_step(key: Any) -> str:
    """Return the step to the value under `key`; strings in double quotes, long keys cut."""
    try:
        text = '"' + repr(key)[1:-1] + '"' if type(key) is str and '"' not in key else repr(key)
    except ValueError:  # an int with more digits than Python prints
        text = "…"
    return f"[{text if len(text) <= 60 else text[:57] + '…'}]"


def type_name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def unknown_type(value: Any, stored: frozenset[type]) -> RefusedError:
    """Return the refusal of a value of a type that is not in `stored`."""
    reason = f"has type {type_name(type(value))}, which would not come back as it is"
    return RefusedError(reason, _remedy(value, stored))


def _remedy(value: Any, stored: frozenset[type]) -> str:
    kind = type(value)
    if isinstance(value, enum.Enum):
        return "store its .value instead"
    if dataclasses.is_dataclass(kind):
        return "store dataclasses.asdict(value) instead"
    if hasattr(kind, "model_dump"):
        return "store value.model_dump() instead"
    if isinstance(value, BaseException):
        return "store str(value) instead"
    for base in kind.__mro__:
        if base in stored or base in _INSTEAD:
            return f"store {_INSTEAD.get(base, f'a plain {base.__name__}')} instead"
    if callable(value):
        return "keep functions and classes out of the state and store what selects them"
    return "store the standard values it is made from and build it where it is used"
