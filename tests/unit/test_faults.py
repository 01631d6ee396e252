"""Fault points cost nothing when off, and do once what a test asks for."""

from __future__ import annotations

import pytest

from perdure import faults
from perdure.testing.faults import fault


async def test_a_point_without_a_hook_does_nothing() -> None:
    assert faults.hook is None
    await faults.reach("claim.send", "thread")


async def test_the_nth_arrival_at_a_point_about_a_subject_counts() -> None:
    happened: list[str] = []

    async def act() -> None:
        happened.append("acted")

    with fault("node.before", act, subject="b", nth=2):
        await faults.reach("node.before", "b")
        await faults.reach("node.before", "a")
        await faults.reach("node.after", "b")
        assert happened == []
        await faults.reach("node.before", "b")
        await faults.reach("node.before", "b")

    assert happened == ["acted"]


async def test_two_scripts_are_both_followed() -> None:
    happened: list[str] = []

    async def outer() -> None:
        happened.append("outer")

    async def inner() -> None:
        happened.append("inner")

    with fault("node.before", outer), fault("node.before", inner):
        await faults.reach("node.before", "a")

    assert happened == ["outer", "inner"]
    assert faults.hook is None


def test_a_script_ends_with_its_block_even_by_an_error() -> None:
    async def act() -> None:
        raise AssertionError

    with pytest.raises(ZeroDivisionError), fault("node.before", act):
        raise ZeroDivisionError

    assert faults.hook is None


def test_an_unknown_point_is_refused_with_those_that_exist() -> None:
    async def act() -> None:
        raise AssertionError

    with (
        pytest.raises(ValueError, match=r"Unknown fault point 'node\.during'.*node\.before"),
        fault(
            "node.during",  # type: ignore[arg-type]
            act,
        ),
    ):
        pass
