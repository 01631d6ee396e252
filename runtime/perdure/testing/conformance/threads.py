"""Operations on whole threads: deleting, copying, pruning."""

from __future__ import annotations

from dataclasses import replace

from perdure.testing.conformance.kit import (
    Capability,
    Subject,
    Timeline,
    expect,
    expect_error,
    ids_of,
    new_name,
    pending,
)

DELETE_THREAD = Capability("delete_thread")
DELETE_FOR_RUNS = Capability("delete_for_runs")
COPY_THREAD = Capability("copy_thread")
PRUNE = Capability("prune")


async def full_thread(subject: Subject) -> tuple[Timeline, Timeline]:
    """Make a root and a child of three checkpoints each, with writes on the oldest and on the newest."""
    root = Timeline(subject)
    child = Timeline(subject, root.thread_id, ns="child:1")
    for timeline in (root, child):
        for number in range(3):
            config = await timeline.put({"n": number} if number else {"n": 0, "first": timeline.ns})
            if number != 1:
                await subject.saver.aput_writes(config, [("n", number + 1)], f"task-{number}")
    return root, child


async def everything(subject: Subject, thread_id: str) -> list[str]:
    return await ids_of(subject.saver.alist({"configurable": {"thread_id": thread_id}}))


# Deleting a thread


@DELETE_THREAD.check
async def checkpoints_are_deleted(subject: Subject) -> None:
    root, _ = await full_thread(subject)
    await subject.saver.adelete_thread(root.thread_id)
    expect(await subject.saver.aget_tuple(root.place), None, "the newest checkpoint")
    expect(await subject.saver.aget_tuple(root.config), None, "a named checkpoint")


@DELETE_THREAD.check
async def writes_and_values_are_deleted(subject: Subject) -> None:
    """Whoever starts the thread anew, even with the same ids, finds nothing of the old one."""
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


# Copying a thread


async def copied(subject: Subject) -> tuple[Timeline, Timeline, Timeline, Timeline]:
    """Make a full thread and its copy: root, child, copied root, copied child."""
    root, child = await full_thread(subject)
    target = Timeline(subject)
    await subject.saver.acopy_thread(root.thread_id, target.thread_id)
    return root, child, target, Timeline(subject, target.thread_id, ns=child.ns)


@COPY_THREAD.check
async def copy_can_be_read(subject: Subject) -> None:
    root, _, target, _ = await copied(subject)
    stored = await target.head()
    expect(stored.checkpoint, (await root.head()).checkpoint, "the newest checkpoint")
    expect(stored.config["configurable"]["thread_id"], target.thread_id, "the thread of its config")


@COPY_THREAD.check
async def all_checkpoints_are_copied(subject: Subject) -> None:
    _, _, target, _ = await copied(subject)
    values = [stored.checkpoint["channel_values"] async for stored in subject.saver.alist(target.place)]
    expect(values, [{"n": number, "first": ""} for number in (2, 1, 0)], "the values")


@COPY_THREAD.check
async def metadata_is_copied(subject: Subject) -> None:
    root, target = Timeline(subject), Timeline(subject)
    await root.put(user="ann", run_id="run")
    await subject.saver.acopy_thread(root.thread_id, target.thread_id)
    expect((await target.head()).metadata, (await root.head()).metadata, "the metadata")


@COPY_THREAD.check
async def namespaces_are_copied(subject: Subject) -> None:
    _, child, _, target = await copied(subject)
    expect((await target.head()).checkpoint, (await child.head()).checkpoint, "the newest of the child")


@COPY_THREAD.check
async def writes_are_copied(subject: Subject) -> None:
    root, _, target, _ = await copied(subject)
    expect(pending(await target.head()), pending(await root.head()), "the pending writes")


@COPY_THREAD.check
async def order_and_parents_are_kept(subject: Subject) -> None:
    root, _, target, _ = await copied(subject)
    listed = [stored async for stored in subject.saver.alist(target.place)]
    expect([stored.checkpoint["id"] for stored in listed], root.ids[::-1], "the ids")
    expect(
        [stored.parent_config for stored in listed],
        [stored.config for stored in listed[1:]] + [None],
        "parents",
    )


@COPY_THREAD.check
async def source_and_copy_go_separate_ways(subject: Subject) -> None:
    root, _, target, _ = await copied(subject)
    config = (await target.head()).config
    await subject.saver.aput_writes(config, [("n", "copy")], "copy")
    await root.put({"n": "source"})
    expect((await target.head()).checkpoint["channel_values"]["n"], 2, "the value of the copy")
    await subject.saver.adelete_thread(target.thread_id)
    expect(await root.stored_ids(), root.ids[::-1], "the ids of the source")
    source = {"configurable": {**config["configurable"], "thread_id": root.thread_id}}
    expect(pending(await root.at(source)), [("task-2", "n", 3)], "the writes of the source")


@COPY_THREAD.check
async def missing_source_copies_nothing(subject: Subject) -> None:
    target = new_name("thread")
    await subject.saver.acopy_thread(new_name("thread"), target)
    expect(await everything(subject, target), [], "the ids")


# Pruning


@PRUNE.check
async def newest_is_kept(subject: Subject) -> None:
    timeline = Timeline(subject)
    await timeline.put({"old": 1})
    await timeline.put_many(3)
    await subject.saver.aprune([timeline.thread_id])
    expect(await timeline.stored_ids(), timeline.ids[-1:], "the ids")
    stored = await timeline.head()
    expect(stored.checkpoint["channel_values"], {"old": 1, "n": 2}, "the values")
    expect(stored.parent_config, None, "the parent, which is gone")


@PRUNE.check
async def several_threads_are_pruned(subject: Subject) -> None:
    one, other = Timeline(subject), Timeline(subject)
    await one.put_many(3)
    await other.put_many(2)
    await subject.saver.aprune([one.thread_id, other.thread_id], strategy="keep_latest")
    expect(await one.stored_ids(), one.ids[-1:], "the ids of the first")
    expect(await other.stored_ids(), other.ids[-1:], "the ids of the second")


@PRUNE.check
async def newest_of_each_namespace_is_kept(subject: Subject) -> None:
    root, child = await full_thread(subject)
    await subject.saver.aprune([root.thread_id])
    expect(await root.stored_ids(), root.ids[-1:], "the ids of the root")
    expect(await child.stored_ids(), child.ids[-1:], "the ids of the child")


@PRUNE.check
async def writes_of_the_newest_are_kept(subject: Subject) -> None:
    root, _ = await full_thread(subject)
    await subject.saver.aprune([root.thread_id])
    expect(pending(await root.head()), [("task-2", "n", 3)], "the pending writes")


@PRUNE.check
async def nothing_is_kept_when_deleting(subject: Subject) -> None:
    root, _ = await full_thread(subject)
    await subject.saver.aprune([root.thread_id], strategy="delete")
    expect(await everything(subject, root.thread_id), [], "the ids")


@PRUNE.check
async def other_threads_are_not_pruned(subject: Subject) -> None:
    root, _ = await full_thread(subject)
    other, _ = await full_thread(subject)
    await subject.saver.aprune([root.thread_id])
    await subject.saver.aprune([root.thread_id], strategy="delete")
    expect(await other.stored_ids(), other.ids[::-1], "the ids of the other thread")


@PRUNE.check
async def no_threads_prune_nothing(subject: Subject) -> None:
    root, _ = await full_thread(subject)
    await subject.saver.aprune([])
    await subject.saver.aprune([], strategy="delete")
    expect(await root.stored_ids(), root.ids[::-1], "the ids")


@PRUNE.check
async def missing_threads_are_passed_over(subject: Subject) -> None:
    root, _ = await full_thread(subject)
    await subject.saver.aprune([new_name("thread"), root.thread_id])
    expect(await root.stored_ids(), root.ids[-1:], "the ids")


@PRUNE.check
async def one_string_is_not_a_sequence_of_threads(subject: Subject) -> None:
    await expect_error(subject.saver.aprune("thread"), TypeError, naming=["thread_ids"])


@PRUNE.check
async def unknown_strategy_is_refused(subject: Subject) -> None:
    root, _ = await full_thread(subject)
    call = subject.saver.aprune([root.thread_id], strategy="oldest")  # type: ignore[arg-type]
    await expect_error(call, ValueError, naming=["keep_latest", "oldest"])
    expect(await root.stored_ids(), root.ids[::-1], "the ids")
