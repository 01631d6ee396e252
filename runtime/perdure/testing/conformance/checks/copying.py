"""acopy_thread: a copy is whole, and independent of its source."""

from __future__ import annotations

from perdure.testing.conformance.expectations import expect
from perdure.testing.conformance.subject import Capability, Subject
from perdure.testing.conformance.timeline import Timeline, everything, full_thread, new_name, pending

COPY_THREAD = Capability("copy_thread")


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
