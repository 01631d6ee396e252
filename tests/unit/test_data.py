"""Plain data that crosses the public surface."""

from __future__ import annotations

from typing import Literal

from perdure.data import Command


def test_a_command_may_be_made_with_its_destinations_said() -> None:
    assert Command[Literal["a"]](goto="a") == Command(goto="a")
