"""The in-process saver beyond the conformance kit: time, copies, refusals, several loops."""

from __future__ import annotations

import enum
from dataclasses import replace
from threading import Barrier, Thread
from typing import Any

import anyio
import pytest

from perdure.checkpoint.base import Checkpoint, Commit, Fence, RunEnd, WriteRow
from perdure.checkpoint.memory import InMemorySaver, MemorySaver
from perdure.errors import InvalidPayloadError, StaleRunError, ThreadBusyError, UnserializableValueError
from perdure.testing.clock import FakeClock
from perdure.testing.conformance.claims import request
from perdure.testing.conformance.subject import Subject
from perdure.testing.conformance.timeline import Timeline


class Color(enum.Enum):
    RED = "red"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(epoch_ns=1_735_787_045_000_000_000)  # 2025-01-02T03:04:05Z


@pytest.fixture
def saver(clock: FakeClock) -> InMemorySaver:
    return InMemorySaver(clock=clock)


def test_the_known_name_is_the_same_class() -> None:
    assert MemorySaver is InMemorySaver


# Leases over time


async def test_a_claim_lasts_thirty_seconds(saver: InMemorySaver, clock: FakeClock) -> None:
    await saver.aclaim(request("t", "first"))
    clock.advance(29.999)
    with pytest.raises(ThreadBusyError):
        await saver.aclaim(request("t", "second"))
    assert await saver.aorphans() == []
    clock.advance(0.001)
    assert [orphan.run_id for orphan in await saver.aorphans()] == ["first"]
    await saver.aclaim(request("t", "second"))


async def test_a_busy_thread_says_who_holds_it_since_when_and_what_to_do(
    saver: InMemorySaver, clock: FakeClock
) -> None:
    await saver.aclaim(request("t", "first"))
    clock.advance(5)
    with pytest.raises(ThreadBusyError) as caught:
        await saver.aclaim(request("t", "second"))
    assert str(caught.value) == (
        "Thread 't' is held by run 'first' since 2025-01-02T03:04:05+00:00. Wait for that run to end, or "
        "use another thread. If it no longer works, its lease runs out by itself, and then recover(graph) "
        "continues it."
    )


async def test_renewing_counts_from_now(saver: InMemorySaver, clock: FakeClock) -> None:
    claim = await saver.aclaim(request("t", "first"))
    for _ in range(3):
        clock.advance(20)
        await saver.arenew(claim.fence)
    clock.advance(29)
    with pytest.raises(ThreadBusyError):
        await saver.aclaim(request("t", "second"))
    clock.advance(1)
    await saver.aclaim(request("t", "second"))


async def test_a_repeated_claim_counts_from_now(saver: InMemorySaver, clock: FakeClock) -> None:
    asked = request("t", "first")
    first = await saver.aclaim(asked)
    clock.advance(20)
    assert (await saver.aclaim(asked)).fence == first.fence
    clock.advance(29)
    with pytest.raises(ThreadBusyError):
        await saver.aclaim(request("t", "second"))


async def test_a_lease_that_ran_out_can_be_renewed_until_somebody_takes_the_thread(
    saver: InMemorySaver, clock: FakeClock
) -> None:
    claim = await saver.aclaim(request("t", "first"))
    clock.advance(60)
    await saver.arenew(claim.fence)
    assert await saver.aorphans() == []
    with pytest.raises(ThreadBusyError):
        await saver.aclaim(request("t", "second"))


async def test_a_successor_gets_a_whole_lease(saver: InMemorySaver, clock: FakeClock) -> None:
    claim = await saver.aclaim(request("t", "first"))
    clock.advance(60)
    await saver.aclaim(request("t", "first", successor_of=claim.fence.epoch))
    clock.advance(29)
    with pytest.raises(ThreadBusyError, match="since 2025-01-02T03:05:05"):
        await saver.aclaim(request("t", "second"))


async def test_renewing_one_claim_does_not_renew_another(saver: InMemorySaver, clock: FakeClock) -> None:
    """An abandoned run of this process is found although other runs continue."""
    await saver.aclaim(request("abandoned", "a"))
    other = await saver.aclaim(request("other", "b"))
    clock.advance(20)
    await saver.arenew(other.fence)
    clock.advance(10)
    assert [orphan.run_id for orphan in await saver.aorphans()] == ["a"]


async def test_the_run_that_was_lost_first_is_listed_first(saver: InMemorySaver, clock: FakeClock) -> None:
    first = await saver.aclaim(request("t1", "renewed"))
    await saver.aclaim(request("t2", "lost soon"))
    clock.advance(10)
    await saver.arenew(first.fence)
    clock.advance(30)
    assert [orphan.run_id for orphan in await saver.aorphans()] == ["lost soon", "renewed"]
    assert [orphan.run_id for orphan in await saver.aorphans(limit=1)] == ["lost soon"]


async def test_the_wall_clock_does_not_matter(saver: InMemorySaver, clock: FakeClock) -> None:
    await saver.aclaim(request("t", "first"))
    clock.set_back(3_600)
    clock.advance(30)
    await saver.aclaim(request("t", "second"))


async def test_the_lease_can_be_made_shorter(saver: InMemorySaver, clock: FakeClock) -> None:
    saver.lease_seconds = 5
    await saver.aclaim(request("t", "first"))
    clock.advance(5)
    await saver.aclaim(request("t", "second"))


async def test_a_stale_run_is_told_what_became_of_its_thread(saver: InMemorySaver, clock: FakeClock) -> None:
    claim = await saver.aclaim(request("t", "first"))
    commit = Commit(thread_id="t", fence=claim.fence, writes=[WriteRow("", "c", "task", "", 0, "a", b"1")])
    clock.advance(30)
    await saver.aclaim(request("t", "second"))
    with pytest.raises(StaleRunError, match="run 'second' took it at 2025-01-02T03:04:35"):
        await saver.acommit(commit)
    await saver.arelease(Fence(thread_id="t", run_id="second", epoch=2), RunEnd(status="success"))
    with pytest.raises(StaleRunError, match=r"given back.*start a new run"):
        await saver.acommit(commit)
    await saver.adelete_thread("t")
    with pytest.raises(StaleRunError, match="deleted"):
        await saver.acommit(commit)


async def test_a_checkpoint_counts_as_drawn_although_its_commit_does_not_say_so(saver: InMemorySaver) -> None:
    timeline = Timeline(Subject(saver=saver))
    await saver.acommit(replace(timeline.commit(), last_id=None))
    assert (await saver.aclaim(request(timeline.thread_id))).last_id == timeline.ids[0]


# Values


async def test_a_refused_value_names_its_key(saver: InMemorySaver) -> None:
    timeline = Timeline(Subject(saver=saver))
    with pytest.raises(UnserializableValueError, match=r"^State key 'a': the value at \[0\] has"):
        await timeline.put({"a": [Color.RED]})
    assert await timeline.stored_ids() == []


async def test_what_the_caller_changes_afterwards_is_not_stored(saver: InMemorySaver) -> None:
    timeline = Timeline(Subject(saver=saver))
    metadata: dict[str, Any] = {"tags": ["a"]}
    commit = timeline.commit(tags=metadata["tags"])
    await saver.acommit(commit)
    metadata["tags"].append("b")
    asked = request(timeline.thread_id, "run", config=metadata)
    claim = await saver.aclaim(asked)
    metadata["tags"].append("c")
    assert (await timeline.head()).metadata["tags"] == ["a"]  # type: ignore[typeddict-item]
    assert claim.head is not None
    saver.lease_seconds = 0
    await saver.arenew(claim.fence)
    [orphan] = await saver.aorphans()
    assert orphan.config == {"tags": ["a", "b"]}


async def test_a_thread_whose_head_cannot_be_read_is_not_taken(saver: InMemorySaver) -> None:
    timeline = Timeline(Subject(saver=saver))
    commit = timeline.commit({"a": 1})
    broken = [blob._replace(payload=b"{") for blob in commit.blobs]
    await saver.acommit(Commit(thread_id=timeline.thread_id, checkpoints=commit.checkpoints, blobs=broken))
    with pytest.raises(InvalidPayloadError, match="State key 'a'"):
        await saver.aclaim(request(timeline.thread_id, "first"))
    await saver.adelete_thread(timeline.thread_id)
    await saver.aclaim(request(timeline.thread_id, "second"))


async def test_versions_of_foreign_callers_are_kept(saver: InMemorySaver) -> None:
    checkpoint = Checkpoint(
        v=4,
        id="1ef-foreign",
        ts="now",
        channel_values={"a": 1},
        channel_versions={"a": "00000000000000000000000000000002.0.123"},
        versions_seen={},
        updated_channels=["a"],
    )
    config = await saver.aput(
        {"configurable": {"thread_id": "t"}}, checkpoint, {}, checkpoint["channel_versions"]
    )
    stored = await saver.aget_tuple(config)
    assert stored is not None
    assert stored.checkpoint["channel_versions"] == checkpoint["channel_versions"]
    assert stored.checkpoint["channel_values"] == {"a": 1}


# Reading while writing


async def test_a_listing_is_of_the_moment_it_began(saver: InMemorySaver) -> None:
    timeline = Timeline(Subject(saver=saver))
    await timeline.put_many(3)
    listing = saver.alist(timeline.place)
    seen = [(await anext(listing)).checkpoint["channel_values"]["n"]]
    await timeline.put({"n": "new"})
    await saver.aprune([timeline.thread_id])
    await saver.adelete_thread(timeline.thread_id)
    seen += [stored.checkpoint["channel_values"]["n"] async for stored in listing]
    assert seen == [2, 1, 0]


def test_several_event_loops_may_use_it_at_once() -> None:
    saver, start, loops, each = InMemorySaver(), Barrier(4), 4, 50

    async def use(number: int) -> None:
        timeline = Timeline(Subject(saver=saver), "t", ns=f"{number}")
        for step in range(each):
            await saver.acommit(timeline.commit({"n": step}))
            assert [stored async for stored in saver.alist(None, limit=3)]
        assert await timeline.stored_ids() == timeline.ids[::-1]

    def run(number: int) -> None:
        start.wait(10)
        anyio.run(use, number)
        finished.append(number)

    finished: list[int] = []
    threads = [Thread(target=run, args=(number,)) for number in range(loops)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(finished) == list(range(loops))
