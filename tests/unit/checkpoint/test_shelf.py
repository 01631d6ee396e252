"""The shelf: values that were taken are gone, values that are still referred to are not."""

from __future__ import annotations

import orjson

from perdure.checkpoint.base import BlobRow, CheckpointRow, WriteRow
from perdure.checkpoint.shelf import Shelf, Stored

WRITER = ("run", 1)


def stored(checkpoint_id: str, parent_id: str | None = None, run_id: str = "run", **versions: str) -> Stored:
    row = CheckpointRow("", checkpoint_id, parent_id, "now", orjson.dumps(versions), b"{}", {})
    return Stored(row, orjson.dumps({"run_id": run_id}), WRITER)


def blob(channel: str, version: str) -> BlobRow:
    return BlobRow("", channel, version, f'"{channel} {version}"'.encode())


def places(shelf: Shelf) -> list[str]:
    """Return the channels and versions on the shelf."""
    return sorted(f"{channel} {version}" for channel, rows in shelf.blobs.items() for version in rows)


def write(checkpoint_id: str, idx: int = 0, payload: bytes = b"1") -> WriteRow:
    return WriteRow("", checkpoint_id, "task", "", idx, "a", payload)


def history() -> Shelf:
    """Make c1 {a 1, b 1} <- c2 {a 2, b 1} <- c3 {a 2, b 3}, with a write on each."""
    shelf = Shelf()
    shelf.add_checkpoint(stored("c1", None, "first", a="1", b="1"))
    shelf.add_checkpoint(stored("c2", "c1", "second", a="2", b="1"))
    shelf.add_checkpoint(stored("c3", "c2", "second", a="2", b="3"))
    for channel, version in (("a", "1"), ("b", "1"), ("a", "2"), ("b", "3")):
        shelf.add_blob(blob(channel, version))
    for checkpoint_id in ("c1", "c2", "c3"):
        shelf.add_write(write(checkpoint_id))
    return shelf


def test_what_only_deleted_checkpoints_had_is_freed() -> None:
    shelf = history().without({"c1"})
    assert sorted(shelf.checkpoints) == ["c2", "c3"]
    assert places(shelf) == ["a 2", "b 1", "b 3"]
    assert sorted(shelf.writes) == ["c2", "c3"]
    assert shelf.newest == "c3"


def test_the_newest_is_found_again_when_it_was_deleted() -> None:
    assert history().without({"c3", "c2"}).newest == "c1"
    assert history().without({"c1", "c2", "c3"}).newest == ""


def test_pruning_keeps_one_checkpoint_and_what_it_refers_to() -> None:
    shelf = history()
    shelf.add_write(write("c0"))
    pruned = shelf.pruned()
    assert [each.row.checkpoint_id for each in pruned.checkpoints.values()] == ["c3"]
    assert pruned.checkpoints["c3"].row.parent_id is None
    assert places(pruned) == ["a 2", "b 3"]
    assert list(pruned.writes) == ["c3"]
    assert Shelf().pruned().checkpoints == {}


def test_readers_of_a_shelf_keep_what_they_hold() -> None:
    shelf = history()
    shelf.without({"c1"})
    shelf.pruned()
    assert sorted(shelf.checkpoints) == ["c1", "c2", "c3"]
    assert shelf.checkpoints["c3"].row.parent_id == "c2"


def test_writes_added_to_what_is_left_are_not_added_to_the_old_shelf() -> None:
    shelf = history()
    shelf.without({"c1"}).add_write(write("c3", 1))
    assert shelf.pending("c3") == [write("c3")]


def test_runs_are_found_by_metadata() -> None:
    assert history().named_by({"second"}) == {"c2", "c3"}
    assert history().named_by({"nobody"}) == set()


def test_a_copy_has_everything_and_no_writer() -> None:
    copy = Shelf()
    copy.copy_from(history())
    assert copy.newest == "c3"
    assert copy.blobs == history().blobs
    assert copy.writes == history().writes
    assert {each.writer for each in copy.checkpoints.values()} == {None}


def test_a_copy_onto_something_adds_only_what_is_missing() -> None:
    target = Shelf()
    target.add_checkpoint(stored("c2", "c0", a="9"))
    target.add_checkpoint(stored("c9"))
    target.add_blob(BlobRow("", "a", "1", b"kept"))
    target.add_write(write("c2", 0, b"kept"))
    source = history()
    target.copy_from(source)
    assert target.checkpoints["c2"].row.parent_id == "c0"
    assert target.newest == "c9"
    assert target.blobs["a"]["1"].payload == b"kept"
    assert places(target) == ["a 1", "a 2", "b 1", "b 3"]
    assert target.pending("c2") == [write("c2", 0, b"kept")]
    target.add_write(write("c1", 1))
    assert source.pending("c1") == [write("c1")]


def test_a_shelf_knows_what_it_holds() -> None:
    shelf = history()
    shelf.add_write(write("c1", -1, b"old"))
    shelf.add_write(write("c1", -1, b"new"))
    row = shelf.checkpoints["c1"].row
    assert shelf.holds_checkpoint(row, WRITER)
    assert not shelf.holds_checkpoint(row, ("run", 2))
    assert not shelf.holds_checkpoint(row._replace(checkpoint_id="c0"), WRITER)
    assert shelf.holds_write(write("c1", 0, b"another, which would not be stored"))
    assert shelf.holds_write(write("c1", -1, b"new"))
    assert not shelf.holds_write(write("c1", -1, b"old"))
    assert not shelf.holds_write(write("c1", 5))
    assert not shelf.holds_write(write("c0"))
