"""Fences: a run that lost its thread cannot write to it; a commit that was stored may be sent again."""

from __future__ import annotations

from dataclasses import replace

from perdure.checkpoint.base import Fence, RunEnd
from perdure.testing.conformance.claims import SUCCESS, claimed, expect_stale, request
from perdure.testing.conformance.expectations import expect
from perdure.testing.conformance.subject import Capability, Subject
from perdure.testing.conformance.timeline import Timeline, new_name, pending

FENCES = Capability("leases")


# The fence


@FENCES.check
async def fence_that_was_never_granted_is_refused(subject: Subject) -> None:
    timeline = Timeline(subject)
    fence = Fence(thread_id=timeline.thread_id, run_id=new_name("run"), epoch=1)
    await expect_stale(subject, timeline, timeline.commit({"a": 1}, fence=fence))
    timeline, claim = await claimed(subject)
    for forged in (
        replace(claim.fence, epoch=claim.fence.epoch + 1),
        replace(claim.fence, run_id=new_name("run")),
    ):
        await expect_stale(subject, timeline, timeline.commit({"a": 1}, fence=forged))


@FENCES.check
async def fence_is_known_by_what_it_says(subject: Subject) -> None:
    timeline, claim = await claimed(subject)
    same = replace(claim.fence)
    await subject.saver.acommit(timeline.commit({"a": 1}, fence=same))
    await subject.leased.arenew(same)
    await subject.leased.arelease(same, SUCCESS)
    await subject.leased.aclaim(request(timeline.thread_id))


@FENCES.check
async def fence_holds_until_somebody_takes_the_thread(subject: Subject) -> None:
    timeline, claim = await claimed(subject)
    await subject.expire_lease(timeline.thread_id)
    await subject.saver.acommit(timeline.commit({"a": 1}, fence=claim.fence))
    expect((await timeline.head()).checkpoint["channel_values"], {"a": 1}, "the values")


@FENCES.check
async def expired_lease_is_taken_over_and_the_old_fence_is_dead(subject: Subject) -> None:
    timeline, claim = await claimed(subject)
    await subject.saver.acommit(timeline.commit({"a": 1}, fence=claim.fence))
    await subject.expire_lease(timeline.thread_id)
    taken = await subject.leased.aclaim(request(timeline.thread_id))
    expect(taken.attempt, 1, "the attempt of a new run")
    await expect_stale(subject, timeline, timeline.commit({"a": "lost"}, fence=claim.fence))
    write = timeline.write("task", 0, "a", "lost")._replace(checkpoint_id=timeline.ids[0])
    await expect_stale(subject, timeline, timeline.writes(write, fence=claim.fence))
    expect((await timeline.head()).checkpoint["channel_values"], {"a": 1}, "the values")
    expect(pending(await timeline.head()), [], "the pending writes")
    await subject.saver.acommit(timeline.commit({"a": 2}, fence=taken.fence))
    expect((await timeline.head()).checkpoint["channel_values"], {"a": 2}, "the values of the new run")


@FENCES.check
async def values_of_a_stale_commit_are_not_stored(subject: Subject) -> None:
    timeline, claim = await claimed(subject)
    await subject.leased.arelease(claim.fence, SUCCESS)
    stale = timeline.commit({"a": "stale"}, fence=claim.fence)
    write = timeline.write("task", 0, "a", "stale")
    await expect_stale(subject, timeline, replace(stale, writes=[write]))
    await subject.saver.acommit(replace(stale, fence=None, blobs=()))
    stored = await timeline.head()
    expect((stored.checkpoint["channel_values"], pending(stored)), ({}, []), "values and writes of it")


@FENCES.check
async def deleted_thread_has_no_fence(subject: Subject) -> None:
    timeline, claim = await claimed(subject)
    await subject.saver.acommit(timeline.commit({"a": 1}, fence=claim.fence))
    await subject.saver.adelete_thread(timeline.thread_id)
    await expect_stale(subject, timeline, timeline.commit({"a": 2}, fence=claim.fence))
    await subject.leased.aclaim(request(timeline.thread_id))
    await expect_stale(subject, timeline, timeline.commit({"a": 3}, fence=claim.fence))


# Repetition: what was stored but not acknowledged is sent again


@FENCES.check
async def repeated_commit_is_accepted_after_a_takeover(subject: Subject) -> None:
    timeline, claim = await claimed(subject)
    commit = timeline.commit({"a": 1}, fence=claim.fence)
    commit = replace(commit, writes=[timeline.write("task", 0, "a", 2)])
    await subject.saver.acommit(commit)
    await subject.saver.acommit(commit)
    await subject.expire_lease(timeline.thread_id)
    taken = await subject.leased.aclaim(request(timeline.thread_id))
    await subject.saver.acommit(timeline.commit({"a": 3}, fence=taken.fence))
    await subject.saver.acommit(commit)
    expect(await timeline.stored_ids(), timeline.ids[::-1], "the ids")
    expect((await timeline.head()).checkpoint["channel_values"], {"a": 3}, "the values")


@FENCES.check
async def repeated_commit_with_more_behind_it_is_stale_after_a_takeover(subject: Subject) -> None:
    timeline, claim = await claimed(subject)
    first = timeline.commit({"a": 1}, fence=claim.fence)
    await subject.saver.acommit(first)
    write = timeline.write("task", 0, "a", 2)
    second = timeline.commit({"a": 3}, fence=claim.fence)
    await subject.expire_lease(timeline.thread_id)
    await subject.leased.aclaim(request(timeline.thread_id))
    await expect_stale(subject, timeline, replace(first, writes=[write]))
    await expect_stale(subject, timeline, replace(first, end=SUCCESS))
    both = [*first.checkpoints, *second.checkpoints]
    await expect_stale(subject, timeline, replace(first, checkpoints=both))
    expect(pending(await timeline.head()), [], "the pending writes")


@FENCES.check
async def repeated_last_commit_is_accepted(subject: Subject) -> None:
    timeline, claim = await claimed(subject)
    with_checkpoint = timeline.commit({"a": 1}, fence=claim.fence, end=SUCCESS)
    await subject.saver.acommit(with_checkpoint)
    await subject.saver.acommit(with_checkpoint)
    again = await subject.leased.aclaim(request(timeline.thread_id))
    write = timeline.write("task", 0, "a", 2)
    alone = replace(timeline.writes(write, fence=again.fence), end=RunEnd(status="error", error="failed"))
    await subject.saver.acommit(alone)
    await subject.saver.acommit(alone)
    await subject.saver.acommit(with_checkpoint)
    await subject.leased.aclaim(request(timeline.thread_id))
    expect(await timeline.stored_ids(), timeline.ids, "the ids")
    expect(pending(await timeline.head()), [("task", "a", 2)], "the pending writes")


@FENCES.check
async def repeated_writes_alone_are_stale_after_a_takeover(subject: Subject) -> None:
    """Check commits in which nothing says which run stored them."""
    timeline, claim = await claimed(subject)
    await subject.saver.acommit(timeline.commit(fence=claim.fence))
    writes = timeline.writes(timeline.write("task", 0, "a", 1), fence=claim.fence)
    await subject.saver.acommit(writes)
    await subject.expire_lease(timeline.thread_id)
    await subject.leased.aclaim(request(timeline.thread_id))
    await expect_stale(subject, timeline, writes)
    expect(pending(await timeline.head()), [("task", "a", 1)], "the pending writes")


@FENCES.check
async def checkpoint_of_another_run_proves_nothing(subject: Subject) -> None:
    timeline, claim = await claimed(subject)
    await subject.expire_lease(timeline.thread_id)
    taken = await subject.leased.aclaim(request(timeline.thread_id))
    theirs = timeline.commit({"a": 1}, fence=taken.fence)
    await subject.saver.acommit(theirs)
    await expect_stale(subject, timeline, replace(theirs, fence=claim.fence))
