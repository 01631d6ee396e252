"""aput: a checkpoint that is stored comes back."""

from __future__ import annotations

from typing import Any

from perdure.checkpoint.base import CHECKPOINT_FORMAT, Checkpoint
from perdure.clock import IdSource
from perdure.testing.conformance.expectations import expect
from perdure.testing.conformance.subject import Capability, Subject
from perdure.testing.conformance.timeline import Timeline, new_name

PUT = Capability("put")


@PUT.check
async def returned_config_addresses_the_checkpoint(subject: Subject) -> None:
    timeline = Timeline(subject, ns="child:1")
    config = await timeline.put()
    address = {"thread_id": timeline.thread_id, "checkpoint_ns": "child:1", "checkpoint_id": timeline.ids[0]}
    expect(config, {"configurable": address}, "the returned config")


@PUT.check
async def whole_checkpoint_comes_back(subject: Subject) -> None:
    timeline = Timeline(subject)
    await timeline.put({"a": 1, "b": [2]}, seen={"node": {"a": "0000000001.x"}})
    stored = (await timeline.head()).checkpoint
    expected = Checkpoint(
        v=CHECKPOINT_FORMAT,
        id=timeline.ids[0],
        ts="2025-01-02T03:04:05.678901+00:00",
        channel_values={"a": 1, "b": [2]},
        channel_versions=timeline.versions,
        versions_seen={"node": {"a": "0000000001.x"}},
        updated_channels=["a", "b"],
    )
    expect(dict(stored), dict(expected), "the checkpoint")


@PUT.check
async def values_keep_their_types(subject: Subject) -> None:
    values: dict[str, Any] = {
        "str": "text with \x00 and ü",
        "int": 2**70,
        "float": -0.0,
        "bool": True,
        "none": None,
        "bytes": b"\x00\xff",
        "list": [1, 1.0, True, None, "1"],
        "dict": {"a": {"b": []}, "$perdure": ["tuple", []]},
    }
    timeline = Timeline(subject)
    await timeline.put(values)
    expect((await timeline.head()).checkpoint["channel_values"], values, "the values")


@PUT.check
async def values_are_copies(subject: Subject) -> None:
    timeline, messages = Timeline(subject), ["first"]
    await timeline.put({"messages": messages})
    messages.append("appended by the writer")
    first = await timeline.head()
    first.checkpoint["channel_values"]["messages"].append("appended by a reader")
    first.metadata["parents"]["appended"] = "by a reader"
    second = await timeline.head()
    expect(second.checkpoint["channel_values"], {"messages": ["first"]}, "the values")
    expect(second.metadata["parents"], {}, "the metadata")


@PUT.check
async def versions_come_back(subject: Subject) -> None:
    timeline = Timeline(subject)
    await timeline.put({"a": 1})
    await timeline.put({"b": 2})
    stored = (await timeline.head()).checkpoint
    expect(stored["channel_versions"], timeline.versions, "the versions")
    expect(stored["updated_channels"], ["b"], "the updated channels")


@PUT.check
async def versions_may_be_any_strings(subject: Subject) -> None:
    thread_id, checkpoint_id = new_name("thread"), IdSource().next()
    versions = {"a": "7", "b": "00000000000000000000000000000003.0.4711", "c": "ü 'quoted' \\ \""}
    checkpoint = Checkpoint(
        v=CHECKPOINT_FORMAT,
        id=checkpoint_id,
        ts="2025-01-02T03:04:05+00:00",
        channel_values={"a": 1, "b": 2, "c": 3},
        channel_versions=versions,
        versions_seen={},
        updated_channels=None,
    )
    place = {"configurable": {"thread_id": thread_id}}
    await subject.saver.aput(place, checkpoint, {}, versions)
    stored = await subject.saver.aget_tuple(place)
    actual = None if stored is None else stored.checkpoint["channel_values"]
    expect(actual, {"a": 1, "b": 2, "c": 3}, "the values")


@PUT.check
async def nodes_that_have_seen_versions_come_back(subject: Subject) -> None:
    timeline = Timeline(subject)
    await timeline.put(seen={"__input__": {}, "__start__": {"__start__": "1"}, "node": {"a": "1"}})
    stored = (await timeline.head()).checkpoint["versions_seen"]
    expect(sorted(stored), ["__input__", "__start__", "node"], "the nodes")


@PUT.check
async def seen_versions_come_back(subject: Subject) -> None:
    timeline = Timeline(subject)
    seen = {"node": {"a": "0000000001.x", "b": "0000000002.y"}, "other": {"a": "0000000003.z"}}
    await timeline.put(seen=seen)
    expect((await timeline.head()).checkpoint["versions_seen"], seen, "the versions seen")


@PUT.check
async def metadata_comes_back(subject: Subject) -> None:
    timeline = Timeline(subject)
    await timeline.put(source="update", step=-1, parents={"": "id"})
    expected = {"source": "update", "step": -1, "parents": {"": "id"}}
    expect(dict((await timeline.head()).metadata), expected, "the metadata")


@PUT.check
async def unknown_metadata_comes_back(subject: Subject) -> None:
    custom: dict[str, Any] = {
        "user": "ü",
        "score": 0.5,
        "tags": ["a", {"b": None}],
        "on": True,
        "big": 2**53 + 1,
    }
    timeline = Timeline(subject)
    await timeline.put(**custom)
    stored = (await timeline.head()).metadata
    expect({key: stored.get(key) for key in custom}, custom, "the custom metadata")


@PUT.check
async def run_id_comes_back(subject: Subject) -> None:
    timeline, run_id = Timeline(subject), new_name("run")
    await timeline.put(run_id=run_id)
    expect((await timeline.head()).metadata.get("run_id"), run_id, "the run id")


@PUT.check
async def root_namespace_is_empty(subject: Subject) -> None:
    timeline = Timeline(subject, ns="")
    await timeline.put({"a": 1})
    stored = await timeline.head()
    expect(stored.config["configurable"]["checkpoint_ns"], "", "the namespace")


@PUT.check
async def child_namespace_is_kept_apart(subject: Subject) -> None:
    root = Timeline(subject)
    child = Timeline(subject, root.thread_id, ns="child:abc")
    await root.put({"a": "root"})
    await child.put({"a": "child"})
    expect((await root.head()).checkpoint["channel_values"], {"a": "root"}, "the values of the root")
    expect((await child.head()).checkpoint["channel_values"], {"a": "child"}, "the values of the child")


@PUT.check
async def namespace_defaults_to_the_root(subject: Subject) -> None:
    timeline = Timeline(subject)
    timeline.config = {"configurable": {"thread_id": timeline.thread_id}}
    config = await timeline.put({"a": 1})
    expect(config["configurable"]["checkpoint_ns"], "", "the namespace of the returned config")
    expect((await timeline.head()).checkpoint["channel_values"], {"a": 1}, "the values")


@PUT.check
async def several_checkpoints_stay_on_a_thread(subject: Subject) -> None:
    timeline = Timeline(subject)
    configs = [await timeline.put({"n": number}) for number in range(3)]
    values = [(await timeline.at(config)).checkpoint["channel_values"]["n"] for config in configs]
    expect(values, [0, 1, 2], "the values of each")


@PUT.check
async def threads_are_kept_apart(subject: Subject) -> None:
    one, other = Timeline(subject), Timeline(subject)
    await one.put({"a": 1})
    await other.put({"a": 2})
    expect((await one.head()).checkpoint["channel_values"], {"a": 1}, "the values of the first thread")
    expect(await one.stored_ids(), one.ids, "the checkpoints of the first thread")


@PUT.check
async def parent_is_the_checkpoint_that_was_addressed(subject: Subject) -> None:
    timeline = Timeline(subject)
    first = await timeline.put()
    await timeline.put()
    expect((await timeline.head()).parent_config, first, "the parent")
    timeline.config = first
    await timeline.put()
    expect((await timeline.head()).parent_config, first, "the parent of a branch")


@PUT.check
async def unchanged_channels_are_found_by_version(subject: Subject) -> None:
    timeline = Timeline(subject)
    first = await timeline.put({"a": 1, "b": 1})
    await timeline.put({"b": 2})  # `a` is not given again
    await timeline.put({"c": 3})
    expected = {"a": 1, "b": 2, "c": 3}
    expect((await timeline.head()).checkpoint["channel_values"], expected, "the newest values")
    expect((await timeline.at(first)).checkpoint["channel_values"], {"a": 1, "b": 1}, "the first values")


@PUT.check
async def channel_may_appear_later(subject: Subject) -> None:
    timeline = Timeline(subject)
    first = await timeline.put({"a": 1})
    await timeline.put({"late": 2})
    expect((await timeline.head()).checkpoint["channel_values"], {"a": 1, "late": 2}, "the newest values")
    expect((await timeline.at(first)).checkpoint["channel_values"], {"a": 1}, "the first values")


@PUT.check
async def channel_without_a_version_is_not_loaded(subject: Subject) -> None:
    timeline = Timeline(subject)
    await timeline.put({"a": 1, "gone": 2})
    await timeline.put({"a": 3}, drop=["gone"])
    expect((await timeline.head()).checkpoint["channel_values"], {"a": 3}, "the values")


@PUT.check
async def channel_without_a_value_is_left_out(subject: Subject) -> None:
    timeline, saver = Timeline(subject), subject.saver
    checkpoint = Checkpoint(
        v=CHECKPOINT_FORMAT,
        id=timeline.next_id(),
        ts="2025-01-02T03:04:05+00:00",
        channel_values={"none": None},
        channel_versions={"none": "1", "empty": "1"},
        versions_seen={},
        updated_channels=None,
    )
    await saver.aput(timeline.place, checkpoint, timeline.metadata({}), {"none": "1", "empty": "1"})
    stored = (await timeline.head()).checkpoint
    expect(stored["channel_values"], {"none": None}, "the values")
    expect(stored["channel_versions"], {"none": "1", "empty": "1"}, "the versions")
