"""aget_tuple: the checkpoint that is meant, and everything that belongs to it."""

from __future__ import annotations

from perdure.clock import IdSource
from perdure.errors import MissingThreadError
from perdure.testing.conformance.expectations import expect, expect_error
from perdure.testing.conformance.subject import Capability, Subject
from perdure.testing.conformance.timeline import Timeline, new_name, pending

GET_TUPLE = Capability("get_tuple")


@GET_TUPLE.check
async def missing_thread_has_none(subject: Subject) -> None:
    place = {"configurable": {"thread_id": new_name("thread")}}
    expect(await subject.saver.aget_tuple(place), None, "the checkpoint of a thread that is not there")


@GET_TUPLE.check
async def newest_is_meant_when_none_is_named(subject: Subject) -> None:
    timeline = Timeline(subject)
    await timeline.put_many(3)
    expect((await timeline.head()).checkpoint["id"], timeline.ids[-1], "the newest")


@GET_TUPLE.check
async def newest_is_the_one_with_the_greatest_id(subject: Subject) -> None:
    timeline = Timeline(subject)
    early, late = timeline.commit({"n": "early"}), timeline.commit({"n": "late"})
    await subject.saver.acommit(late)
    await subject.saver.acommit(early)
    expect((await timeline.head()).checkpoint["channel_values"], {"n": "late"}, "the values of the newest")


@GET_TUPLE.check
async def named_checkpoint_is_found(subject: Subject) -> None:
    timeline = Timeline(subject)
    first = await timeline.put({"n": 1})
    await timeline.put({"n": 2})
    stored = await timeline.at(first)
    expect(stored.checkpoint["id"], timeline.ids[0], "the id")
    expect(stored.checkpoint["channel_values"], {"n": 1}, "the values")


@GET_TUPLE.check
async def config_has_all_three_keys(subject: Subject) -> None:
    timeline = Timeline(subject, ns="child:1")
    config = await timeline.put()
    expect((await timeline.head()).config, config, "the config of the newest")
    expect((await timeline.at(config)).config, config, "the config of a named one")


@GET_TUPLE.check
async def checkpoint_has_all_fields(subject: Subject) -> None:
    timeline = Timeline(subject)
    await timeline.put({"a": 1})
    keys = ["channel_values", "channel_versions", "id", "ts", "updated_channels", "v", "versions_seen"]
    expect(sorted((await timeline.head()).checkpoint), keys, "the fields")


@GET_TUPLE.check
async def metadata_is_of_this_checkpoint(subject: Subject) -> None:
    timeline = Timeline(subject)
    first = await timeline.put(source="input", step=-1)
    await timeline.put(source="loop", step=0)
    expect((await timeline.at(first)).metadata.get("source"), "input", "the source of the first")
    expect((await timeline.head()).metadata.get("source"), "loop", "the source of the newest")


@GET_TUPLE.check
async def parent_is_told_where_there_is_one(subject: Subject) -> None:
    timeline = Timeline(subject)
    first = await timeline.put()
    await timeline.put()
    expect((await timeline.at(first)).parent_config, None, "the parent of the first")
    expect((await timeline.head()).parent_config, first, "the parent of the second")


@GET_TUPLE.check
async def pending_writes_are_of_this_checkpoint(subject: Subject) -> None:
    timeline = Timeline(subject)
    first = await timeline.put()
    second = await timeline.put()
    await subject.saver.aput_writes(first, [("a", 1)], "task-1")
    await subject.saver.aput_writes(second, [("a", 2)], "task-2")
    expect(pending(await timeline.at(first)), [("task-1", "a", 1)], "the writes of the first")
    expect(pending(await timeline.head()), [("task-2", "a", 2)], "the writes of the second")


@GET_TUPLE.check
async def namespace_is_followed(subject: Subject) -> None:
    root = Timeline(subject)
    child = Timeline(subject, root.thread_id, ns="child:1")
    await root.put({"a": "root"})
    await child.put({"a": "child"})
    expect((await child.head()).checkpoint["channel_values"], {"a": "child"}, "the values of the child")
    elsewhere = {"configurable": {"thread_id": root.thread_id, "checkpoint_ns": "child:2"}}
    expect(await subject.saver.aget_tuple(elsewhere), None, "the checkpoint of a namespace that is not there")


@GET_TUPLE.check
async def missing_checkpoint_is_none(subject: Subject) -> None:
    timeline = Timeline(subject)
    await timeline.put()
    missing = {"configurable": {**timeline.config["configurable"], "checkpoint_id": IdSource().next()}}
    expect(await subject.saver.aget_tuple(missing), None, "the checkpoint that is not there")


@GET_TUPLE.check
async def thread_must_be_named(subject: Subject) -> None:
    await expect_error(
        subject.saver.aget_tuple({"configurable": {}}), MissingThreadError, naming=["thread_id"]
    )
    await expect_error(subject.saver.aget_tuple({}), MissingThreadError, naming=["thread_id"])
