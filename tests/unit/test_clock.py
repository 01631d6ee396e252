"""Checkpoint ids come from one source, in the order of drawing."""

from __future__ import annotations

import uuid
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.clock import SYSTEM_CLOCK, IdSource
from perdure.errors import InvalidPayloadError
from perdure.testing.clock import FakeClock


def test_ids_grow_while_the_clock_stands_still() -> None:
    ids = IdSource(FakeClock())
    drawn = [ids.next() for _ in range(100)]

    assert drawn == sorted(drawn)
    assert len(set(drawn)) == 100


def test_ids_grow_when_the_clock_goes_back() -> None:
    clock = FakeClock()
    ids = IdSource(clock)
    before = ids.next()
    clock.set_back(3600)

    assert ids.next() > before


def test_an_id_follows_the_one_the_source_was_shown_however_far_ahead_it_is() -> None:
    ahead, behind = FakeClock(), FakeClock()
    ahead.advance(10**6)
    shown = IdSource(ahead, suffix="ffff-ffffffffffff").next()
    ids = IdSource(behind, suffix="8000-000000000000")
    ids.advance_past(shown)

    assert ids.next() > shown


def test_being_shown_an_old_id_does_not_turn_the_source_back() -> None:
    clock = FakeClock()
    old = IdSource(clock).next()
    clock.advance(1)
    ids = IdSource(clock)
    newest = ids.next()
    ids.advance_past(old)

    assert ids.next() > newest


@given(st.lists(st.integers(-(10**6), 10**6)))
def test_ids_grow_whatever_the_clock_does(jumps: list[int]) -> None:
    clock = FakeClock()
    ids = IdSource(clock)
    drawn = [ids.next()]
    for jump in jumps:
        clock.set_back(jump)
        drawn.append(ids.next())

    assert all(one < other for one, other in pairwise(drawn))


def test_ids_are_uuids_of_version_6() -> None:
    clock = FakeClock()
    drawn = uuid.UUID(IdSource(clock).next())

    assert drawn.version == 6
    assert drawn.variant == uuid.RFC_4122


def test_two_sources_at_one_instant_draw_different_ids() -> None:
    clock = FakeClock()

    assert IdSource(clock).next() != IdSource(clock).next()


async def test_the_system_clock_sleeps_by_its_monotonic_time() -> None:
    before = SYSTEM_CLOCK.monotonic()
    await SYSTEM_CLOCK.sleep(0.001)

    assert SYSTEM_CLOCK.monotonic() > before


@pytest.mark.parametrize(
    "foreign", ["ckpt-1", "f", "face", "1_2", "f" * 23, "f47ac10b-58cc-4372-a567-0e02b2c3d479"]
)
def test_an_id_that_is_no_uuid6_is_refused(foreign: str) -> None:
    with pytest.raises(InvalidPayloadError, match="is not a UUIDv6"):
        IdSource().advance_past(foreign)
