"""aput_writes: writes of tasks are pending on the checkpoint that the tasks ran from."""

from __future__ import annotations

from typing import Any

from perdure.constants import ERROR, INTERRUPT, RESUME
from perdure.errors import MissingThreadError
from perdure.testing.conformance.expectations import expect, expect_error
from perdure.testing.conformance.subject import Capability, Subject
from perdure.testing.conformance.timeline import Timeline, pending

PUT_WRITES = Capability("put_writes")


@PUT_WRITES.check
async def writes_are_seen_with_the_checkpoint(subject: Subject) -> None:
    timeline = Timeline(subject)
    await subject.saver.aput_writes(await timeline.put(), [("a", 1)], "task")
    expect(pending(await timeline.head()), [("task", "a", 1)], "the pending writes")


@PUT_WRITES.check
async def one_call_may_hold_many_writes(subject: Subject) -> None:
    timeline = Timeline(subject)
    writes = [(f"channel {number}", number) for number in range(12)]
    await subject.saver.aput_writes(await timeline.put(), writes, "task")
    expected = [("task", channel, value) for channel, value in writes]
    expect(pending(await timeline.head()), expected, "the pending writes, in their order")


@PUT_WRITES.check
async def many_tasks_may_write(subject: Subject) -> None:
    timeline = Timeline(subject)
    config = await timeline.put()
    for task_id in ("task-2", "task-1", "task-3"):
        await subject.saver.aput_writes(config, [("a", task_id)], task_id)
    expected = [(task_id, "a", task_id) for task_id in ("task-1", "task-2", "task-3")]
    expect(pending(await timeline.head()), expected, "the pending writes")


@PUT_WRITES.check
async def task_ids_come_back(subject: Subject) -> None:
    timeline, task_id = Timeline(subject), "6c2a1f0e-0000-1111-2222-333344445555"
    await subject.saver.aput_writes(await timeline.put(), [("a", 1), ("b", 2)], task_id)
    task_ids = [task for task, _, _ in pending(await timeline.head())]
    expect(task_ids, [task_id, task_id], "the task ids")


@PUT_WRITES.check
async def channels_and_values_come_back(subject: Subject) -> None:
    value: dict[str, Any] = {"list": [1, 1.0, None, b"\x00"], "text": "ü\x00"}
    timeline = Timeline(subject)
    await subject.saver.aput_writes(await timeline.put(), [("a", value), ("a", None)], "task")
    expect(pending(await timeline.head()), [("task", "a", value), ("task", "a", None)], "the pending writes")


@PUT_WRITES.check
async def writes_are_ordered_by_task_path(subject: Subject) -> None:
    timeline = Timeline(subject)
    config = await timeline.put()
    for task_id, path in (("a", "~3"), ("b", "~1"), ("c", "~2"), ("d", "~1")):
        await subject.saver.aput_writes(config, [("x", 0), ("x", 1)], task_id, path)
    tasks = [task_id for task_id, _, _ in pending(await timeline.head())]
    expect(tasks, ["b", "b", "d", "d", "c", "c", "a", "a"], "the tasks, by path, then by id")


@PUT_WRITES.check
async def writes_stored_again_are_not_doubled(subject: Subject) -> None:
    timeline = Timeline(subject)
    config = await timeline.put()
    await subject.saver.aput_writes(config, [("a", "first"), ("b", "first")], "task")
    await subject.saver.aput_writes(config, [("a", "again")], "task")
    expected = [("task", "a", "first"), ("task", "b", "first")]
    expect(pending(await timeline.head()), expected, "the pending writes, the first of each place")


@PUT_WRITES.check
async def control_writes_are_overwritten(subject: Subject) -> None:
    timeline = Timeline(subject)
    config = await timeline.put()
    await subject.saver.aput_writes(config, [("a", 1), (INTERRUPT, "asked"), (RESUME, [1])], "task")
    await subject.saver.aput_writes(config, [(ERROR, "failed"), (RESUME, [1, 2])], "task")
    expected = {("a", 1), (INTERRUPT, "asked"), (ERROR, "failed")}
    stored = [(channel, value) for _, channel, value in pending(await timeline.head())]
    expect({write for write in stored if write[0] != RESUME}, expected, "the pending writes")
    expect([value for channel, value in stored if channel == RESUME], [[1, 2]], "the answers")


@PUT_WRITES.check
async def control_writes_given_twice_keep_the_last(subject: Subject) -> None:
    timeline = Timeline(subject)
    await subject.saver.aput_writes(await timeline.put(), [(RESUME, 1), (RESUME, 2)], "task")
    expect(pending(await timeline.head()), [("task", RESUME, 2)], "the pending writes")


@PUT_WRITES.check
async def namespaces_are_kept_apart(subject: Subject) -> None:
    root = Timeline(subject)
    child = Timeline(subject, root.thread_id, ns="child:1")
    await root.put()
    await child.put()
    await subject.saver.aput_writes(child.config, [("a", 1)], "task")
    expect(pending(await root.head()), [], "the pending writes of the root")
    expect(pending(await child.head()), [("task", "a", 1)], "the pending writes of the child")


@PUT_WRITES.check
async def new_checkpoint_starts_without_writes(subject: Subject) -> None:
    timeline = Timeline(subject)
    first = await timeline.put()
    await subject.saver.aput_writes(first, [("a", 1)], "task")
    await timeline.put()
    expect(pending(await timeline.head()), [], "the pending writes of the newest")
    expect(pending(await timeline.at(first)), [("task", "a", 1)], "the pending writes of the first")


@PUT_WRITES.check
async def config_must_name_the_checkpoint(subject: Subject) -> None:
    timeline = Timeline(subject)
    await timeline.put()
    call = subject.saver.aput_writes(timeline.place, [("a", 1)], "task")
    await expect_error(call, MissingThreadError, naming=["checkpoint_id"])
