"""Leases: at most one live run writes to a thread."""

from __future__ import annotations

import re
from dataclasses import replace

from perdure.checkpoint.base import Fence, RunEnd
from perdure.errors import StaleRunError, ThreadBusyError
from perdure.testing.conformance.claims import SUCCESS, claimed, expect_stale, request
from perdure.testing.conformance.expectations import expect, expect_error, expect_that
from perdure.testing.conformance.subject import Capability, Subject
from perdure.testing.conformance.timeline import Timeline, new_name

LEASES = Capability("leases")


# Claiming


@LEASES.check
async def new_thread_is_granted(subject: Subject) -> None:
    timeline, run_id = Timeline(subject), new_name("run")
    claim = await subject.leased.aclaim(request(timeline.thread_id, run_id))
    expect((claim.fence.thread_id, claim.fence.run_id), (timeline.thread_id, run_id), "the fence")
    expect((claim.head, claim.attempt), (None, 1), "head and attempt")
    expect(await timeline.stored_ids(), [], "the checkpoints")


@LEASES.check
async def claim_reads_the_newest_checkpoint(subject: Subject) -> None:
    timeline = Timeline(subject)
    await timeline.put({"a": 1})
    await subject.saver.aput_writes(await timeline.put({"a": 2}), [("a", 3)], "task")
    claim = await subject.leased.aclaim(request(timeline.thread_id))
    expect(claim.head, await timeline.head(), "the head")


@LEASES.check
async def claim_reads_the_checkpoint_that_is_asked_for(subject: Subject) -> None:
    root = Timeline(subject)
    child = Timeline(subject, root.thread_id, ns="child:1")
    first = await root.put({"a": 1})
    await root.put({"a": 2})
    await child.put({"a": 3})
    asked = request(root.thread_id, checkpoint_id=root.ids[0])
    expect((await subject.leased.aclaim(asked)).head, await root.at(first), "the head by id")
    missing = replace(asked, checkpoint_id=child.ids[0])
    expect((await subject.leased.aclaim(missing)).head, None, "the head by an id of another namespace")
    below = replace(asked, checkpoint_id=None, ns=child.ns)
    expect((await subject.leased.aclaim(below)).head, await child.head(), "the head of a namespace")


@LEASES.check
async def claim_knows_the_greatest_id_drawn(subject: Subject) -> None:
    timeline, claim = await claimed(subject)
    expect(claim.last_id, None, "the greatest id of a new thread")
    commit = timeline.commit(fence=claim.fence, end=SUCCESS)
    drawn = timeline.next_id()
    await subject.saver.acommit(replace(commit, last_id=drawn))
    again = await subject.leased.aclaim(request(timeline.thread_id))
    expect(again.last_id, drawn, "the greatest id")
    older = timeline.writes(fence=again.fence)
    await subject.saver.acommit(replace(older, last_id=timeline.ids[0], end=SUCCESS))
    expect((await subject.leased.aclaim(request(timeline.thread_id))).last_id, drawn, "the greatest id later")


@LEASES.check
async def copy_knows_the_ids_of_its_source(subject: Subject) -> None:
    timeline, copy = Timeline(subject), new_name("thread")
    await timeline.put_many(2)
    await subject.saver.acopy_thread(timeline.thread_id, copy)
    claim = await subject.leased.aclaim(request(copy))
    expect(claim.last_id, timeline.ids[-1], "the greatest id of the copy")


@LEASES.check
async def foreign_checkpoints_count_as_drawn(subject: Subject) -> None:
    timeline = Timeline(subject)
    claim = await subject.leased.aclaim(request(timeline.thread_id))
    await timeline.put_many(2)
    await subject.leased.arelease(claim.fence, SUCCESS)
    later = await subject.leased.aclaim(request(timeline.thread_id))
    expect(later.last_id, timeline.ids[-1], "the greatest id")


@LEASES.check
async def second_run_is_told_who_holds_the_thread_since_when(subject: Subject) -> None:
    timeline, claim = await claimed(subject)
    naming = [timeline.thread_id, claim.fence.run_id]
    call = subject.leased.aclaim(request(timeline.thread_id))
    error = await expect_error(call, ThreadBusyError, naming=naming)
    expect_that(
        re.search(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d", str(error)), f"the message says since when: {error}"
    )


@LEASES.check
async def refused_claim_changes_nothing(subject: Subject) -> None:
    timeline, claim = await claimed(subject)
    await expect_error(subject.leased.aclaim(request(timeline.thread_id)), ThreadBusyError)
    await subject.saver.acommit(timeline.commit({"a": 1}, fence=claim.fence))
    expect((await timeline.head()).checkpoint["channel_values"], {"a": 1}, "the values")


@LEASES.check
async def repeated_claim_gives_the_same_fence(subject: Subject) -> None:
    timeline = Timeline(subject)
    asked = request(timeline.thread_id)
    claim = await subject.leased.aclaim(asked)
    await subject.saver.acommit(timeline.commit({"a": 1}, fence=claim.fence))
    again = await subject.leased.aclaim(asked)
    expect((again.fence, again.attempt), (claim.fence, 1), "fence and attempt")
    expect(again.head, await timeline.head(), "the head")


@LEASES.check
async def another_claim_with_the_same_run_id_is_refused(subject: Subject) -> None:
    timeline, claim = await claimed(subject)
    asked = request(timeline.thread_id, claim.fence.run_id)
    await expect_error(subject.leased.aclaim(asked), ThreadBusyError)


@LEASES.check
async def threads_are_claimed_apart(subject: Subject) -> None:
    run_id = new_name("run")
    one, first = await claimed(subject, run_id)
    other, second = await claimed(subject, run_id)
    await subject.saver.acommit(one.commit(fence=first.fence))
    await subject.saver.acommit(other.commit(fence=second.fence))
    expect((await one.stored_ids(), await other.stored_ids()), (one.ids, other.ids), "the ids")


@LEASES.check
async def epochs_grow(subject: Subject) -> None:
    timeline, claim = await claimed(subject)
    await subject.leased.arelease(claim.fence, SUCCESS)
    second = await subject.leased.aclaim(request(timeline.thread_id))
    await subject.expire_lease(timeline.thread_id)
    third = await subject.leased.aclaim(request(timeline.thread_id))
    expect_that(claim.fence.epoch < second.fence.epoch < third.fence.epoch, "each claim has a greater epoch")


@LEASES.check
async def refused_request_takes_nothing(subject: Subject) -> None:
    timeline = Timeline(subject)
    bad = request(timeline.thread_id, config={"thing": object()})
    await expect_error(subject.leased.aclaim(bad), TypeError)
    await subject.leased.aclaim(request(timeline.thread_id))


# Giving back


@LEASES.check
async def released_thread_is_free_and_its_fence_dead(subject: Subject) -> None:
    timeline, claim = await claimed(subject)
    await subject.leased.arelease(claim.fence, RunEnd(status="error", error="it failed"))
    await expect_stale(subject, timeline, timeline.commit({"a": 1}, fence=claim.fence))
    again = await subject.leased.aclaim(request(timeline.thread_id))
    await expect_stale(subject, timeline, timeline.commit({"a": 1}, fence=claim.fence))
    await subject.saver.acommit(timeline.commit({"a": 2}, fence=again.fence))
    expect((await timeline.head()).checkpoint["channel_values"], {"a": 2}, "the values")


@LEASES.check
async def last_commit_gives_the_thread_back(subject: Subject) -> None:
    timeline, claim = await claimed(subject)
    await subject.saver.acommit(timeline.commit({"a": 1}, fence=claim.fence, end=SUCCESS))
    expect((await timeline.head()).checkpoint["channel_values"], {"a": 1}, "the values")
    await expect_stale(subject, timeline, timeline.commit({"a": 2}, fence=claim.fence))
    again = await subject.leased.aclaim(request(timeline.thread_id))
    expect_that(again.head is not None, "the next run finds what the last commit stored")


@LEASES.check
async def run_id_may_be_used_again_after_the_end(subject: Subject) -> None:
    timeline, claim = await claimed(subject)
    await subject.leased.arelease(claim.fence, SUCCESS)
    again = await subject.leased.aclaim(request(timeline.thread_id, claim.fence.run_id))
    expect_that(again.fence.epoch > claim.fence.epoch, "the epoch is greater")
    await expect_stale(subject, timeline, timeline.commit(fence=claim.fence))


@LEASES.check
async def lost_claim_is_not_released_again(subject: Subject) -> None:
    timeline, claim = await claimed(subject)
    await subject.leased.arelease(claim.fence, SUCCESS)
    again = await subject.leased.aclaim(request(timeline.thread_id))
    await subject.leased.arelease(claim.fence, SUCCESS)
    await subject.saver.acommit(timeline.commit(fence=again.fence))
    await subject.leased.arelease(Fence(thread_id=new_name("thread"), run_id="run", epoch=1), SUCCESS)


@LEASES.check
async def forgetting_a_claim_does_not_give_it_back(subject: Subject) -> None:
    timeline, claim = await claimed(subject)
    subject.leased.forget(claim.fence)
    await expect_error(subject.leased.aclaim(request(timeline.thread_id)), ThreadBusyError)
    await subject.leased.arelease(claim.fence, SUCCESS)
    subject.leased.forget(claim.fence)


# Renewing


@LEASES.check
async def live_claim_is_renewed(subject: Subject) -> None:
    timeline, claim = await claimed(subject)
    await subject.leased.arenew(claim.fence)
    await subject.leased.arenew(claim.fence)
    await expect_error(subject.leased.aclaim(request(timeline.thread_id)), ThreadBusyError)


@LEASES.check
async def lost_claim_is_not_renewed(subject: Subject) -> None:
    timeline, claim = await claimed(subject)
    await subject.expire_lease(timeline.thread_id)
    await subject.leased.aclaim(request(timeline.thread_id))
    naming = [timeline.thread_id, claim.fence.run_id]
    await expect_error(subject.leased.arenew(claim.fence), StaleRunError, naming=naming)
