"""acommit: rows that are handed over together are stored together, once."""

from __future__ import annotations

import enum
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from perdure.checkpoint.base import Commit
from perdure.constants import ERROR, RESERVED_SLOTS, RESUME
from perdure.errors import UnserializableValueError
from perdure.testing.conformance.expectations import expect, expect_error
from perdure.testing.conformance.subject import Capability, Subject
from perdure.testing.conformance.timeline import Timeline, new_name, pending

COMMIT = Capability("commit")


class Shade(enum.Enum):
    RED = "red"


@COMMIT.check
async def checkpoint_values_and_writes_are_stored(subject: Subject) -> None:
    timeline = Timeline(subject)
    commit = timeline.commit({"a": 1, "b": None}, user="ann")
    writes = [timeline.write("task-2", 0, "a", 2, "~2"), timeline.write("task-1", 0, "a", 1, "~1")]
    await subject.saver.acommit(replace(commit, writes=writes))
    stored = await timeline.head()
    expect(stored.checkpoint["channel_values"], {"a": 1, "b": None}, "the values")
    expect(stored.checkpoint["channel_versions"], timeline.versions, "the versions")
    expect(stored.checkpoint["updated_channels"], ["a", "b"], "the updated channels")
    expect(stored.metadata.get("user"), "ann", "the metadata")
    expect(pending(stored), [("task-1", "a", 1), ("task-2", "a", 2)], "the pending writes")


@COMMIT.check
async def one_commit_may_hold_several_supersteps_and_namespaces(subject: Subject) -> None:
    root = Timeline(subject)
    child = Timeline(subject, root.thread_id, ns="child:1")
    commits = [root.commit({"n": 1}), child.commit({"n": 2}), root.commit({"n": 3})]
    merged = Commit(
        thread_id=root.thread_id,
        checkpoints=[row for commit in commits for row in commit.checkpoints],
        blobs=[row for commit in commits for row in commit.blobs],
        writes=[root.write("task", 0, "n", 4), child.write("task", 0, "n", 5)],
    )
    await subject.saver.acommit(merged)
    expect(await root.stored_ids(), root.ids[::-1], "the ids of the root")
    expect((await root.head()).checkpoint["channel_values"], {"n": 3}, "the values of the root")
    expect((await child.head()).checkpoint["channel_values"], {"n": 2}, "the values of the child")
    expect(pending(await child.head()), [("task", "n", 5)], "the writes of the child")


@COMMIT.check
async def one_commit_may_hold_many_rows(subject: Subject) -> None:
    timeline, values = Timeline(subject), {f"channel {number}": number for number in range(300)}
    commit = timeline.commit(values)
    writes = [timeline.write(f"task-{number:03}", 0, "n", number) for number in range(300)]
    await subject.saver.acommit(replace(commit, writes=writes))
    stored = await timeline.head()
    expect(stored.checkpoint["channel_values"], values, "the values")
    expect([value for _, _, value in pending(stored)], list(range(300)), "the pending writes")


@COMMIT.check
async def writes_may_come_alone(subject: Subject) -> None:
    timeline = Timeline(subject)
    await subject.saver.acommit(timeline.commit())
    await subject.saver.acommit(timeline.writes(timeline.write("task", 0, "a", 1)))
    await subject.saver.acommit(timeline.writes(timeline.write("task", 1, "a", 2)))
    expect(pending(await timeline.head()), [("task", "a", 1), ("task", "a", 2)], "the pending writes")


@COMMIT.check
async def empty_commit_stores_nothing(subject: Subject) -> None:
    timeline = Timeline(subject)
    await subject.saver.acommit(Commit(thread_id=timeline.thread_id))
    expect(await timeline.stored_ids(), [], "the ids")


@COMMIT.check
async def repeated_commit_changes_nothing(subject: Subject) -> None:
    timeline = Timeline(subject)
    commit = timeline.commit({"a": 1})
    commit = replace(
        commit, writes=[timeline.write("task", 0, "a", 2), timeline.write("task", -1, ERROR, "e")]
    )
    await subject.saver.acommit(commit)
    once = await timeline.head()
    await subject.saver.acommit(commit)
    expect(await timeline.head(), once, "the checkpoint after the repetition")
    expect(await timeline.stored_ids(), timeline.ids, "the ids")


@COMMIT.check
async def first_write_of_a_place_stays(subject: Subject) -> None:
    timeline = Timeline(subject)
    commit = timeline.commit()
    first = [timeline.write("task", 0, "a", "first"), timeline.write("task", 0, "a", "same commit")]
    await subject.saver.acommit(replace(commit, writes=first))
    await subject.saver.acommit(timeline.writes(timeline.write("task", 0, "b", "later")))
    expect(pending(await timeline.head()), [("task", "a", "first")], "the pending writes")


@COMMIT.check
async def last_write_of_a_reserved_slot_stays(subject: Subject) -> None:
    timeline, slot = Timeline(subject), RESERVED_SLOTS[RESUME]
    commit = timeline.commit()
    first = [timeline.write("task", slot, RESUME, 1), timeline.write("task", slot, RESUME, 2)]
    await subject.saver.acommit(replace(commit, writes=first))
    expect(pending(await timeline.head()), [("task", RESUME, 2)], "the pending writes of one commit")
    await subject.saver.acommit(timeline.writes(timeline.write("task", slot, RESUME, 3)))
    expect(pending(await timeline.head()), [("task", RESUME, 3)], "the pending writes after another")


@COMMIT.check
async def value_of_a_version_is_stored_once(subject: Subject) -> None:
    timeline = Timeline(subject)
    commit = timeline.commit({"a": "first"})
    await subject.saver.acommit(commit)
    blobs = [blob._replace(payload=subject.saver.serde.dumps("again")) for blob in commit.blobs]
    await subject.saver.acommit(replace(commit, blobs=blobs))
    expect((await timeline.head()).checkpoint["channel_values"], {"a": "first"}, "the values")


@COMMIT.check
async def branches_keep_their_own_values(subject: Subject) -> None:
    timeline = Timeline(subject)
    first = await timeline.put({"a": "root"})
    await timeline.put({"a": "one"})
    one = timeline.config
    timeline.config = first
    await timeline.put({"a": "two"})
    expect((await timeline.at(one)).checkpoint["channel_values"], {"a": "one"}, "the values of one branch")
    expect((await timeline.head()).checkpoint["channel_values"], {"a": "two"}, "the values of the other")


@COMMIT.check
async def refused_commit_stores_nothing(subject: Subject) -> None:
    timeline = Timeline(subject)
    good = timeline.commit({"a": 1})
    bad = timeline.commit({"a": 2}, thing=object())
    write = timeline.write("task", 0, "a", 3)
    both = replace(
        bad,
        checkpoints=[*good.checkpoints, *bad.checkpoints],
        blobs=[*good.blobs, *bad.blobs],
        writes=[write],
    )
    await expect_error(subject.saver.acommit(both), UnserializableValueError, naming=["thing"])
    expect(await timeline.stored_ids(), [], "the ids")
    later = replace(bad, checkpoints=[row._replace(metadata={}) for row in bad.checkpoints], blobs=[])
    await subject.saver.acommit(later)
    stored = await timeline.head()
    expect((stored.checkpoint["channel_values"], pending(stored)), ({}, []), "values and writes of it")


@COMMIT.check
async def metadata_comes_back_equal_or_is_refused(subject: Subject) -> None:
    odd: list[Any] = [
        "nul \x00",
        {"nul \x00": 1},
        "literal \\u0000",
        "\ud800",
        -0.0,
        1e308,
        float("nan"),
        2**70,
        (1, 2),
        {1: 2},
        Shade.RED,
        datetime(2025, 1, 1, tzinfo=UTC),
    ]
    for value in odd:
        timeline = Timeline(subject)
        try:
            await subject.saver.acommit(timeline.commit(odd=value))
        except UnserializableValueError:
            expect(await timeline.stored_ids(), [], f"what is stored although {value!r} was refused")
        else:
            expect((await timeline.head()).metadata.get("odd"), value, "the metadata")


@COMMIT.check
async def threads_with_the_same_ids_are_kept_apart(subject: Subject) -> None:
    """Check that equal ids on two threads, as after a copy, are two checkpoints."""
    one = Timeline(subject)
    commit = one.commit({"a": 1})
    other = replace(commit, thread_id=new_name("thread"), blobs=())
    await subject.saver.acommit(commit)
    await subject.saver.acommit(other)
    expect((await one.head()).checkpoint["channel_values"], {"a": 1}, "the values of one")
    stored = await one.at({"configurable": {"thread_id": other.thread_id}})
    expect(stored.checkpoint["channel_values"], {}, "the values of the other")
