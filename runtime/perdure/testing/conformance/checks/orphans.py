"""Orphans: a run whose process is gone is found, and continued by one successor."""

from __future__ import annotations

from perdure.checkpoint.base import Claim, ClaimRequest, Fence, Orphan, RunEnd
from perdure.errors import StaleRunError, ThreadBusyError
from perdure.testing.conformance.claims import SUCCESS, claimed, expect_stale, request
from perdure.testing.conformance.expectations import expect, expect_error, expect_that
from perdure.testing.conformance.subject import Capability, Subject
from perdure.testing.conformance.timeline import Timeline, new_name

ORPHANS = Capability("leases")


async def orphans(subject: Subject, graph: str) -> list[Orphan]:
    return await subject.leased.aorphans(graph=graph)


async def orphaned(subject: Subject, graph: str) -> tuple[Timeline, Claim]:
    """Make a thread whose run is gone."""
    timeline = Timeline(subject)
    claim = await subject.leased.aclaim(request(timeline.thread_id, graph=graph))
    await subject.expire_lease(timeline.thread_id)
    return timeline, claim


def successor(orphan: Fence, graph: str = "graph") -> ClaimRequest:
    return request(orphan.thread_id, orphan.run_id, graph=graph, successor_of=orphan.epoch)


@ORPHANS.check
async def orphan_says_how_to_continue_it(subject: Subject) -> None:
    graph, timeline = new_name("graph"), Timeline(subject)
    asked = request(
        timeline.thread_id,
        graph=graph,
        signature="some signature",
        input=b'{"question": "\\u0000"}',
        config={"recursion_limit": 5, "metadata": {"user": "ann"}, "none": None},
        durability="exit",
    )
    claim = await subject.leased.aclaim(asked)
    expect(await orphans(subject, graph), [], "the orphans while the run lives")
    await subject.expire_lease(timeline.thread_id)
    expected = Orphan(
        thread_id=asked.thread_id,
        run_id=asked.run_id,
        epoch=claim.fence.epoch,
        graph=graph,
        signature="some signature",
        input=asked.input,
        config=asked.config,
        durability="exit",
        attempt=1,
        started=False,
    )
    expect(await orphans(subject, graph), [expected], "the orphans")


@ORPHANS.check
async def orphan_has_started_with_a_checkpoint_of_its_own(subject: Subject) -> None:
    graph, timeline = new_name("graph"), Timeline(subject)
    child = Timeline(subject, timeline.thread_id, ns="child:1")
    await timeline.put({"a": "of somebody else"})
    claim = await subject.leased.aclaim(request(timeline.thread_id, graph=graph))
    await subject.saver.acommit(timeline.writes(timeline.write("task", 0, "a", 1), fence=claim.fence))
    await subject.saver.acommit(child.commit({"a": 1}, fence=claim.fence))
    await subject.expire_lease(timeline.thread_id)
    expect([each.started for each in await orphans(subject, graph)], [False], "started, with a child's only")
    await subject.saver.acommit(timeline.commit({"a": 2}, fence=claim.fence))
    expect([each.started for each in await orphans(subject, graph)], [True], "started")


@ORPHANS.check
async def run_that_ended_is_no_orphan(subject: Subject) -> None:
    graph, threads = new_name("graph"), [Timeline(subject) for _ in range(3)]
    claims = [await subject.leased.aclaim(request(each.thread_id, graph=graph)) for each in threads]
    await subject.leased.arelease(claims[0].fence, RunEnd(status="cancelled"))
    await subject.saver.acommit(threads[1].commit(fence=claims[1].fence, end=SUCCESS))
    for each in threads:
        await subject.expire_lease(each.thread_id)
    await subject.saver.adelete_thread(threads[2].thread_id)
    expect(await orphans(subject, graph), [], "the orphans")


@ORPHANS.check
async def orphans_come_oldest_first_and_not_too_many(subject: Subject) -> None:
    graph = new_name("graph")
    runs = [(await orphaned(subject, graph))[1].fence.run_id for _ in range(3)]
    await orphaned(subject, new_name("graph"))
    expect([each.run_id for each in await orphans(subject, graph)], runs, "the orphans of the graph")
    some = await subject.leased.aorphans(graph=graph, limit=2)
    expect([each.run_id for each in some], runs[:2], "the oldest two")
    everyone = {each.run_id for each in await subject.leased.aorphans(limit=1_000)}
    expect_that(everyone >= set(runs), "orphans of all graphs are listed when none is named")


@ORPHANS.check
async def orphan_is_continued_by_its_successor(subject: Subject) -> None:
    graph = new_name("graph")
    timeline, claim = await orphaned(subject, graph)
    await subject.saver.acommit(timeline.commit({"a": 1}, fence=claim.fence))
    again = await subject.leased.aclaim(successor(claim.fence, graph))
    expect(again.fence.run_id, claim.fence.run_id, "the run")
    expect((again.attempt, again.head), (2, await timeline.head()), "attempt and head")
    expect_that(again.fence.epoch > claim.fence.epoch, "the epoch is greater")
    await expect_stale(subject, timeline, timeline.commit({"a": "lost"}, fence=claim.fence))
    await subject.saver.acommit(timeline.commit({"a": 2}, fence=again.fence))
    expect(await orphans(subject, graph), [], "the orphans")
    await subject.expire_lease(timeline.thread_id)
    [orphan] = await orphans(subject, graph)
    expect((orphan.epoch, orphan.attempt, orphan.started), (again.fence.epoch, 2, True), "the orphan again")


@ORPHANS.check
async def orphan_has_one_successor(subject: Subject) -> None:
    """Check two recoverers that have the same stale list."""
    timeline, claim = await orphaned(subject, "graph")
    again = await subject.leased.aclaim(successor(claim.fence))
    await expect_error(subject.leased.aclaim(successor(claim.fence)), ThreadBusyError, StaleRunError)
    await subject.saver.acommit(timeline.commit({"a": 1}, fence=again.fence))
    await subject.expire_lease(timeline.thread_id)
    await expect_error(subject.leased.aclaim(successor(claim.fence)), ThreadBusyError, StaleRunError)
    third = await subject.leased.aclaim(successor(again.fence))
    expect(third.attempt, 3, "the attempt")


@ORPHANS.check
async def live_run_has_no_successor(subject: Subject) -> None:
    timeline, claim = await claimed(subject)
    await expect_error(
        subject.leased.aclaim(successor(claim.fence)), ThreadBusyError, naming=[claim.fence.run_id]
    )
    await subject.saver.acommit(timeline.commit(fence=claim.fence))


@ORPHANS.check
async def run_that_ended_has_no_successor(subject: Subject) -> None:
    timeline, claim = await claimed(subject)
    await subject.saver.acommit(timeline.commit(fence=claim.fence, end=SUCCESS))
    await expect_error(
        subject.leased.aclaim(successor(claim.fence)), StaleRunError, naming=[timeline.thread_id]
    )
    await subject.leased.aclaim(request(timeline.thread_id))


@ORPHANS.check
async def run_whose_thread_was_taken_has_no_successor(subject: Subject) -> None:
    timeline, claim = await orphaned(subject, "graph")
    taken = await subject.leased.aclaim(request(timeline.thread_id))
    await expect_error(subject.leased.aclaim(successor(claim.fence)), ThreadBusyError, StaleRunError)
    await subject.saver.acommit(timeline.commit(fence=taken.fence))
    await subject.expire_lease(timeline.thread_id)
    await expect_error(subject.leased.aclaim(successor(claim.fence)), StaleRunError)


@ORPHANS.check
async def predecessor_does_not_get_in_by_repeating_its_claim(subject: Subject) -> None:
    """Check a process that is frozen before it reads the answer to its claim, until after the recovery."""
    timeline, claim = await orphaned(subject, "graph")
    again = await subject.leased.aclaim(successor(claim.fence))
    call = subject.leased.aclaim(request(timeline.thread_id, claim.fence.run_id))
    await expect_error(call, ThreadBusyError)
    await subject.saver.acommit(timeline.commit(fence=again.fence))
