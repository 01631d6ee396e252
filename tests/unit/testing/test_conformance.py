"""The conformance kit finds what is wrong with a saver, and says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest

from perdure.checkpoint.base import (
    BaseCheckpointSaver,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    ClaimRequest,
    Commit,
)
from perdure.checkpoint.memory import InMemorySaver
from perdure.errors import StaleRunError
from perdure.testing.clock import FakeClock
from perdure.testing.conformance import CAPABILITIES, CHECKS, Check, Report, Subject, run
from perdure.testing.conformance.claims import expect_stale, request
from perdure.testing.conformance.expectations import expect, expect_error, expect_that
from perdure.testing.conformance.timeline import Timeline


class Unleased(BaseCheckpointSaver):
    """A saver that keeps threads and knows nothing of runs."""

    def __init__(self) -> None:
        self._kept = InMemorySaver()
        self.serde = self._kept.serde

    async def acommit(self, commit: Commit) -> None:
        await self._kept.acommit(commit)

    async def aget_tuple(self, config: Mapping[str, Any]) -> CheckpointTuple | None:
        return await self._kept.aget_tuple(config)

    def alist(
        self,
        config: Mapping[str, Any] | None,
        *,
        filter: Mapping[str, Any] | None = None,
        before: Mapping[str, Any] | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        return self._kept.alist(config, filter=filter, before=before, limit=limit)

    async def aput(
        self,
        config: Mapping[str, Any],
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: Mapping[str, str],
    ) -> dict[str, Any]:
        return await self._kept.aput(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: Mapping[str, Any], writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await self._kept.aput_writes(config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        await self._kept.adelete_thread(thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await self._kept.adelete_for_runs(run_ids)

    async def acopy_thread(self, source: str, target: str) -> None:
        await self._kept.acopy_thread(source, target)

    async def aprune(
        self, thread_ids: Sequence[str], *, strategy: Literal["keep_latest", "delete"] = "keep_latest"
    ) -> None:
        await self._kept.aprune(thread_ids, strategy=strategy)


class Forgetful(InMemorySaver):
    """Deletes nothing, and crashes when asked to copy."""

    async def adelete_thread(self, thread_id: str) -> None:
        pass

    async def acopy_thread(self, source: str, target: str) -> None:
        raise RuntimeError("no copies here")


@asynccontextmanager
async def unleased() -> AsyncIterator[Subject]:
    yield Subject(saver=Unleased())


@asynccontextmanager
async def forgetful() -> AsyncIterator[Subject]:
    yield Subject(saver=Forgetful())


def test_every_check_of_the_known_suite_is_there() -> None:
    """Require as many checks as the known suite has, by capability, and our two groups."""
    known = {
        "put": 17,
        "put_writes": 10,
        "get_tuple": 10,
        "list": 16,
        "delete_thread": 5,
        "delete_for_runs": 7,
        "copy_thread": 8,
        "prune": 8,
    }
    counts = Counter(check.capability for check in CHECKS)
    assert tuple(counts) == CAPABILITIES == (*known, "commit", "leases")
    assert {name: counts[name] for name in known if counts[name] < known[name]} == {}
    assert len({str(check) for check in CHECKS}) == len(CHECKS)


async def test_one_saver_can_be_shown_all_checks_one_after_the_other() -> None:
    clock = FakeClock()
    saver = InMemorySaver(clock=clock)

    async def expire(thread_id: str) -> None:
        clock.advance(saver.lease_seconds)

    for check in CHECKS:
        await check(Subject(saver=saver, expire=expire))


async def test_a_saver_without_leases_is_not_asked_for_them() -> None:
    report = await run(unleased)
    assert report.passed, str(report)
    assert report.skipped == ("leases",)
    assert {check.capability for check in report.checked} == set(CAPABILITIES) - {"leases"}
    assert str(report).endswith("not checked: leases")


async def test_failures_are_collected_and_told() -> None:
    report = await run(forgetful, capabilities=["get_tuple", "delete_thread", "copy_thread"])
    assert not report.passed
    failed = Counter(check.capability for check in report.failures)
    assert failed["get_tuple"] == 0
    assert failed["delete_thread"] == 3
    assert failed["copy_thread"] == 8
    text = str(report)
    assert text.startswith(f"{len(report.checked) - 11} of {len(report.checked)} checks passed\n")
    assert "\nFAILED delete_thread: checkpoints_are_deleted: AssertionError: the newest checkpoint: " in text
    assert "\nFAILED copy_thread: copy_can_be_read: RuntimeError: no copies here" in text


async def test_an_unknown_capability_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Unknown capabilities \['delete'\]; there are: put, "):
        await run(unleased, capabilities=["delete", "put"])


def check_named(name: str) -> Check:
    [check] = [check for check in CHECKS if check.name == name]
    return check


async def test_leases_cannot_be_checked_without_a_way_to_expire_them() -> None:
    check = check_named("fence_holds_until_somebody_takes_the_thread")
    with pytest.raises(TypeError, match="expire="):
        await check(Subject(saver=InMemorySaver()))
    with pytest.raises(TypeError, match="Unleased has no leases"):
        await check(Subject(saver=Unleased()))


async def test_expectations_fail_where_they_should() -> None:
    with pytest.raises(AssertionError, match=r"the number: expected 1, got True"):
        expect(True, 1, "the number")
    with pytest.raises(AssertionError, match="not so: the sky is green"):
        expect_that(0, "the sky is green")

    async def answer() -> int:
        return 5

    async def fail() -> None:
        raise ValueError("of this")

    with pytest.raises(AssertionError, match="expected KeyError or ValueError, got the answer 5"):
        await expect_error(answer(), KeyError, ValueError)
    with pytest.raises(AssertionError, match="names 'that'"):
        await expect_error(fail(), ValueError, naming=["that"])
    with pytest.raises(ValueError, match="of this"):
        await expect_error(fail(), KeyError)


async def test_a_stale_commit_that_is_stored_all_the_same_is_found() -> None:
    class Careless(InMemorySaver):
        async def acommit(self, commit: Commit) -> None:
            try:
                await super().acommit(commit)
            except StaleRunError:
                await super().acommit(Commit(thread_id=commit.thread_id, checkpoints=commit.checkpoints))
                raise

    subject = Subject(saver=Careless())
    timeline = Timeline(subject)
    claim = await subject.leased.aclaim(request(timeline.thread_id))
    await subject.saver.adelete_thread(timeline.thread_id)
    with pytest.raises(AssertionError, match="the ids after a refused commit"):
        await expect_stale(subject, timeline, timeline.commit(fence=claim.fence))


def test_a_report_without_failures_has_passed() -> None:
    assert Report((), {}).passed
    assert ClaimRequest is type(request("t"))
