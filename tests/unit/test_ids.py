"""Ids are functions of what they name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.ids import make_version, path_text, task_id, version_checkpoint, version_counter

ARGUMENTS = ("1f0c-checkpoint", "", 3, "node", "~__pregel_pull, node", ("branch:to:node",))
OTHERS = ("1f0c-other", "a:b", 4, "other", "~__pregel_push, 0000000000", ("join:a+b:node",))


def test_the_same_place_in_the_schedule_has_the_same_id() -> None:
    assert task_id(*ARGUMENTS) == task_id(*ARGUMENTS)
    assert task_id(*ARGUMENTS) == "9f351a0e-58de-694e-7173-a9bbc8f265c0", "stored threads hold such ids"


@pytest.mark.parametrize("position", range(len(ARGUMENTS)))
def test_each_part_of_a_place_makes_another_id(position: int) -> None:
    changed = list(ARGUMENTS)
    changed[position] = OTHERS[position]

    assert task_id(*changed) != task_id(*ARGUMENTS)  # type: ignore[arg-type]


def test_parts_that_run_together_differently_have_different_ids() -> None:
    assert task_id("c", "", 1, "ab", "c", ()) != task_id("c", "", 1, "a", "bc", ())
    assert task_id("c", "", 1, "a", "p", ("x", "y")) != task_id("c", "", 1, "a", "p", ("xy",))


def test_an_id_can_name_a_lone_surrogate() -> None:
    assert task_id("c", "", 1, "\ud800", "p", ()) != task_id("c", "", 1, "\ud801", "p", ())


@given(st.lists(st.tuples(st.just("__pregel_push"), st.integers(0, 10**9)), min_size=2))
def test_paths_of_sends_sort_as_text_as_they_do_as_tuples(paths: list[tuple[str, int]]) -> None:
    assert sorted(paths) == sorted(paths, key=path_text)


def test_nodes_sort_before_sends_as_stored() -> None:
    assert path_text(("__pregel_pull", "zebra")) < path_text(("__pregel_push", 0))


@given(st.integers(1, 10**10 - 1), st.integers(1, 10**10 - 1))
def test_versions_sort_as_their_counters_whatever_checkpoint_they_name(one: int, other: int) -> None:
    assert (make_version(one, "z") < make_version(other, "a")) == (one < other)


def test_a_version_tells_its_parts() -> None:
    version = make_version(12, "1f0c-checkpoint.with.dots")

    assert version_counter(version) == 12
    assert version_checkpoint(version) == "1f0c-checkpoint.with.dots"


def test_two_branches_make_different_versions_of_one_counter() -> None:
    assert make_version(5, "one") != make_version(5, "other")
