"""Services that run beside something until they are dismissed."""

from __future__ import annotations

import asyncio

import pytest

from perdure.aio.attendants import Attendants
from tests.unit.aio.causes import BoomError, Patient, all_begun, assert_cancelled_once, turns


def not_expected(failure: Exception) -> None:
    raise AssertionError(failure)


async def test_dismissed_attendants_are_cancelled_and_outlasted() -> None:
    patients = [Patient(), Patient()]
    attendants = Attendants(patients, not_expected)
    await all_begun(patients)

    await attendants.dismiss()

    assert_cancelled_once(patients)


async def test_cancelled_while_it_waits_a_dismissal_still_outlasts_them_all() -> None:
    patients = [Patient(), Patient(), Patient()]
    for patient in patients:
        patient.may_end.clear()
    attendants = Attendants(patients, not_expected)
    await all_begun(patients)
    dismissal = asyncio.create_task(attendants.dismiss())
    await turns()
    dismissal.cancel()
    patients[0].may_end.set()  # the others take longer
    await turns()

    assert not dismissal.done()
    for patient in patients:
        patient.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await dismissal
    assert_cancelled_once(patients)


async def test_a_failure_is_told_at_once() -> None:
    told: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    async def fails() -> None:
        raise BoomError

    attendants = Attendants([fails], told.set_result)

    assert isinstance(await told, BoomError)
    await attendants.dismiss()
