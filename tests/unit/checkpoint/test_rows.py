"""Rows to views, and views to rows."""

from __future__ import annotations

import enum
from typing import Any

import orjson
import pytest

from perdure.checkpoint.addresses import config_of
from perdure.checkpoint.base import BlobRow, Checkpoint, CheckpointRow, WriteRow
from perdure.checkpoint.rows import build_tuple, commit_of_checkpoint, commit_of_writes, settled_writes
from perdure.checkpoint.serde import JsonSerializer
from perdure.constants import ERROR, INTERRUPT, RESUME
from perdure.errors import InvalidPayloadError, MissingThreadError, UnserializableValueError
from perdure.ids import make_version

SERDE = JsonSerializer()
CONFIG = config_of("t", "ns", "c1")


class Color(enum.Enum):
    RED = "red"


def checkpoint(**changes: Any) -> Checkpoint:
    whole = Checkpoint(
        v=1,
        id="c2",
        ts="2025-01-01T00:00:00+00:00",
        channel_values={"a": 1, "b": (2,)},
        channel_versions={"a": "1", "b": "2"},
        versions_seen={"node": {"a": "1"}},
        updated_channels=None,
    )
    return whole | changes  # type: ignore[return-value]


def row(checkpoint_id: str = "c2", **versions: str) -> CheckpointRow:
    return CheckpointRow("ns", checkpoint_id, "c1", "now", orjson.dumps(versions), b"{}", {"step": 1})


def shelved(*blobs: BlobRow) -> dict[str, dict[str, BlobRow]]:
    """Return the shelf's values by channel and version."""
    by_channel: dict[str, dict[str, BlobRow]] = {}
    for blob in blobs:
        by_channel.setdefault(blob.channel, {})[blob.version] = blob
    return by_channel


def blob(channel: str, version: str, payload: bytes = b"null") -> BlobRow:
    return BlobRow("ns", channel, version, payload)


def write(idx: int, value: object = None, task: str = "t", path: str = "", channel: str = "a") -> WriteRow:
    return WriteRow("ns", "c2", task, path, idx, channel, SERDE.dumps(value))


# Writing


def test_a_checkpoint_becomes_a_row_and_the_values_at_new_versions() -> None:
    commit = commit_of_checkpoint(SERDE, CONFIG, checkpoint(), {"step": 1}, {"b": "2", "gone": "2"})
    assert (commit.thread_id, commit.fence, commit.last_id, commit.end) == ("t", None, "c2", None)
    assert commit.checkpoints == (
        CheckpointRow(
            "ns",
            "c2",
            "c1",
            "2025-01-01T00:00:00+00:00",
            b'{"a":"1","b":"2"}',
            b'{"node":{"a":"1"}}',
            {"step": 1},
        ),
    )
    assert commit.blobs == [BlobRow("ns", "b", "2", b'{"$perdure":["tuple",[2]]}')]
    assert commit.writes == ()


def test_a_checkpoint_put_on_a_bare_thread_has_no_parent() -> None:
    commit = commit_of_checkpoint(SERDE, {"configurable": {"thread_id": "t"}}, checkpoint(), {}, {})
    assert (commit.checkpoints[0].ns, commit.checkpoints[0].parent_id) == ("", None)


def test_a_value_that_cannot_be_stored_is_refused_naming_its_key() -> None:
    bad = checkpoint(channel_values={"a": 1, "b": [Color.RED]})
    with pytest.raises(UnserializableValueError, match=r"^State key 'b': the value at \[0\] has"):
        commit_of_checkpoint(SERDE, CONFIG, bad, {}, {"b": "2"})
    with pytest.raises(UnserializableValueError, match=r"^State key 'b': the value has type .*Color"):
        commit_of_writes(SERDE, CONFIG, [("b", Color.RED)], "task")


@pytest.mark.parametrize(
    "changes",
    [{"channel_versions": {"a": 1}}, {"versions_seen": {"node": {"a": 1}}}],
    ids=["channel_versions", "versions_seen"],
)
def test_a_version_that_is_no_string_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(UnserializableValueError, match="Channel 'a' has version 1 of type int"):
        commit_of_checkpoint(SERDE, CONFIG, checkpoint(**changes), {}, {})


def test_writes_take_their_places() -> None:
    writes = [("a", 1), (INTERRUPT, "?"), ("b", 2), (ERROR, "!"), (INTERRUPT, "??"), (RESUME, 0)]
    commit = commit_of_writes(SERDE, CONFIG, writes, "task", "~path")
    assert commit.thread_id == "t"
    assert {row[:4] for row in commit.writes} == {("ns", "c1", "task", "~path")}
    assert [(row.idx, row.channel, row.payload) for row in commit.writes] == [
        (0, "a", b"1"),
        (-3, INTERRUPT, b'"??"'),
        (2, "b", b"2"),
        (-1, ERROR, b'"!"'),
        (-4, RESUME, b"0"),
    ]


def test_writes_need_a_checkpoint() -> None:
    with pytest.raises(MissingThreadError, match="checkpoint_id"):
        commit_of_writes(SERDE, {"configurable": {"thread_id": "t"}}, [("a", 1)], "task")


def test_of_writes_to_one_place_the_first_stays_and_of_a_reserved_slot_the_last() -> None:
    first, second = write(0, "first"), write(0, "second")
    old, new = write(-1, "old"), write(-1, "new")
    others = [write(0, task="other"), first._replace(ns=""), first._replace(checkpoint_id="c3"), write(1)]
    assert settled_writes([first, old, second, *others, new]) == [first, new, *others]


# Reading


def test_a_view_has_what_the_versions_refer_to() -> None:
    old, new, other = make_version(1, "c1"), make_version(2, "c2"), "not ours"
    blobs = shelved(
        blob("a", old, b"1"),
        blob("b", new, b"2"),
        blob("b", old, b"0"),
        blob("d", other, b"4"),
        blob("x", new, b"9"),
    )
    view = build_tuple(SERDE, "t", row(a=old, b=new, c=new, d=other), blobs, [])
    assert view.checkpoint == {
        "v": 1,
        "id": "c2",
        "ts": "now",
        "channel_values": {"a": 1, "b": 2, "d": 4},
        "channel_versions": {"a": old, "b": new, "c": new, "d": other},
        "versions_seen": {},
        "updated_channels": ["b"],
    }
    assert view.config == config_of("t", "ns", "c2")
    assert view.parent_config == CONFIG
    assert view.metadata == {"step": 1}
    assert view.pending_writes == []


def test_updated_channels_are_sorted() -> None:
    version = make_version(1, "c2")
    blobs = shelved(*(blob(channel, version) for channel in "zay"))
    view = build_tuple(SERDE, "t", row(z=version, a=version, y=version), blobs, [])
    assert view.checkpoint["updated_channels"] == ["a", "y", "z"]


def test_a_view_without_a_parent_names_none() -> None:
    assert build_tuple(SERDE, "t", row()._replace(parent_id=None), {}, []).parent_config is None


def test_pending_writes_are_ordered_by_path_then_task_then_place() -> None:
    writes = [
        write(1, 6, task="a", path="~2"),
        write(-1, 5, task="a", path="~2", channel=ERROR),
        write(10, 4, task="b", path="~10"),
        write(2, 3, task="b", path="~10"),
        write(0, 2, task="a", path="~10"),
        write(0, 1, task="z", path=""),
    ]
    view = build_tuple(SERDE, "t", row(), {}, writes)
    assert view.pending_writes == [
        ("z", "a", 1),
        ("a", "a", 2),
        ("b", "a", 3),
        ("b", "a", 4),
        ("a", ERROR, 5),
        ("a", "a", 6),
    ]


def test_a_payload_that_cannot_be_read_is_named() -> None:
    version = make_version(1, "c2")
    with pytest.raises(InvalidPayloadError, match=r"^State key 'a': "):
        build_tuple(SERDE, "t", row(a=version), shelved(blob("a", version, b"{")), [])
    with pytest.raises(InvalidPayloadError, match=r"^State key 'w': "):
        build_tuple(SERDE, "t", row(), {}, [write(0, channel="w")._replace(payload=b"{")])


def test_what_is_put_is_what_is_read() -> None:
    put = checkpoint(channel_versions=dict.fromkeys("ab", make_version(3, "c2")))
    commit = commit_of_checkpoint(SERDE, CONFIG, put, {"source": "loop"}, put["channel_versions"])
    view = build_tuple(SERDE, "t", commit.checkpoints[0], shelved(*commit.blobs), [])
    assert view.checkpoint == put | {"updated_channels": ["a", "b"]}
