"""adelete_thread and adelete_for_runs: everything of a thread, or of some runs, is deleted."""

from __future__ import annotations

from dataclasses import replace

from perdure.testing.conformance.expectations import expect, expect_error
from perdure.testing.conformance.subject import Capability, Subject
from perdure.testing.conformance.timeline import Timeline, everything, full_thread, new_name, pending

DELETE_THREAD = Capability("delete_thread")
DELETE_FOR_RUNS = Capability("delete_for_runs")


@DELETE_THREAD.check
async def checkpoints_are_deleted(subject: Subject) -> None:
    root, _ = await full_thread(subject)
    await subject.saver.adelete_thread(root.thread_id)
    expect(await subject.saver.aget_tuple(root.place), None, "the newest checkpoint")
    expect(await subject.saver.aget_tuple(root.config), None, "a named checkpoint")


@DELETE_THREAD.check
async def writes_and_values_are_deleted(subject: Subject) -> None:
    """Check that a thread that is started anew, even with the same ids, finds nothing of the old one."""
    timeline = Timeline(subject)
    commit = timeline.commit({"n": "old"})
    await subject.saver.acommit(commit)
    await subject.saver.acommit(timeline.writes(timeline.write("task", 0, "n", "old")))
    await subject.saver.adelete_thread(timeline.thread_id)
    blobs = [blob._replace(payload=subject.saver.serde.dumps("new")) for blob in commit.blobs]
    await subject.saver.acommit(replace(commit, blobs=blobs))
    expect((await timeline.head()).checkpoint["channel_values"], {"n": "new"}, "the values")
    expect(pending(await timeline.head()), [], "the pending writes")


@DELETE_THREAD.check
async def all_namespaces_are_deleted(subject: Subject) -> None:
    root, child = await full_thread(subject)
    await subject.saver.adelete_thread(root.thread_id)
    expect(await everything(subject, root.thread_id), [], "the ids")
    expect(await subject.saver.aget_tuple(child.place), None, "the newest checkpoint of the child")


@DELETE_THREAD.check
async def other_threads_are_not_deleted(subject: Subject) -> None:
    root, _ = await full_thread(subject)
    other, _ = await full_thread(subject)
    await subject.saver.adelete_thread(root.thread_id)
    expect(await other.stored_ids(), other.ids[::-1], "the ids of the other thread")
    expect(pending(await other.head()), [("task-2", "n", 3)], "the writes of the other thread")


@DELETE_THREAD.check
async def deleting_a_missing_thread_does_nothing(subject: Subject) -> None:
    await subject.saver.adelete_thread(new_name("thread"))


# Deleting what runs stored


async def two_runs(subject: Subject) -> tuple[Timeline, str, str]:
    """Make two checkpoints of a first run, then two of a second, with a write on each."""
    timeline, first, second = Timeline(subject), new_name("run"), new_name("run")
    for number, run_id in enumerate((first, first, second, second)):
        config = await timeline.put({f"n{number}": number}, run_id=run_id)
        await subject.saver.aput_writes(config, [("n", number)], "task")
    return timeline, first, second


@DELETE_FOR_RUNS.check
async def what_one_run_stored_is_deleted(subject: Subject) -> None:
    timeline, _, second = await two_runs(subject)
    await subject.saver.adelete_for_runs([second])
    expect(await timeline.stored_ids(), [timeline.ids[1], timeline.ids[0]], "the ids")
    expect((await timeline.head()).checkpoint["id"], timeline.ids[1], "the newest")


@DELETE_FOR_RUNS.check
async def what_several_runs_stored_is_deleted(subject: Subject) -> None:
    timeline, first, second = await two_runs(subject)
    other, third, _ = await two_runs(subject)
    await subject.saver.adelete_for_runs([first, second, third])
    expect(await timeline.stored_ids(), [], "the ids of the first thread")
    expect(await other.stored_ids(), [other.ids[3], other.ids[2]], "the ids of the second thread")


@DELETE_FOR_RUNS.check
async def what_other_runs_stored_can_still_be_read(subject: Subject) -> None:
    timeline, first, _ = await two_runs(subject)
    await subject.saver.adelete_for_runs([first])
    stored = await timeline.head()
    expect(await timeline.stored_ids(), [timeline.ids[3], timeline.ids[2]], "the ids")
    values = {"n0": 0, "n1": 1, "n2": 2, "n3": 3}  # the first two at versions that the first run made
    expect(stored.checkpoint["channel_values"], values, "the values")
    expect(pending(stored), [("task", "n", 3)], "the pending writes")


@DELETE_FOR_RUNS.check
async def their_writes_are_deleted(subject: Subject) -> None:
    timeline, run_id = Timeline(subject), new_name("run")
    commit = timeline.commit(run_id=run_id)
    await subject.saver.acommit(commit)
    await subject.saver.acommit(timeline.writes(timeline.write("task", 0, "n", 1)))
    await subject.saver.adelete_for_runs([run_id])
    await subject.saver.acommit(commit)
    expect(pending(await timeline.head()), [], "the pending writes when the checkpoint is stored again")


@DELETE_FOR_RUNS.check
async def no_runs_delete_nothing(subject: Subject) -> None:
    timeline, _, _ = await two_runs(subject)
    await subject.saver.adelete_for_runs([])
    expect(await timeline.stored_ids(), timeline.ids[::-1], "the ids")


@DELETE_FOR_RUNS.check
async def unknown_runs_delete_nothing(subject: Subject) -> None:
    timeline, _, _ = await two_runs(subject)
    await timeline.put()  # names no run
    await subject.saver.adelete_for_runs([new_name("run")])
    expect(await timeline.stored_ids(), timeline.ids[::-1], "the ids")


@DELETE_FOR_RUNS.check
async def runs_are_deleted_in_all_namespaces(subject: Subject) -> None:
    run_id, root = new_name("run"), Timeline(subject)
    child = Timeline(subject, root.thread_id, ns="child:1")
    await root.put(run_id=run_id)
    await child.put(run_id=run_id)
    await child.put(run_id=new_name("run"))
    await subject.saver.adelete_for_runs([run_id])
    expect(await everything(subject, root.thread_id), [child.ids[1]], "the ids")


@DELETE_FOR_RUNS.check
async def one_string_is_not_a_sequence_of_runs(subject: Subject) -> None:
    await expect_error(subject.saver.adelete_for_runs("run"), TypeError, naming=["run_ids"])
