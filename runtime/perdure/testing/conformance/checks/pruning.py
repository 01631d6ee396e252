"""aprune: the newest checkpoint of every namespace is kept, or nothing."""

from __future__ import annotations

from perdure.testing.conformance.expectations import expect, expect_error
from perdure.testing.conformance.subject import Capability, Subject
from perdure.testing.conformance.timeline import Timeline, everything, full_thread, new_name, pending

PRUNE = Capability("prune")


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
