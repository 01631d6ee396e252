"""The output of a run: the keys that are shown, as a dict or as one bare value, the reader's to change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.pregel.step.output import Output, output_of
from perdure.pregel.step.state import ThreadState
from perdure.pregel.step.task import Writes
from tests.unit.pregel.graphs import chain

KEYS = ["x", "y", "hidden", "branch:to:a"]
writes = st.lists(st.tuples(st.sampled_from(KEYS), st.integers()), max_size=8)


@given(writes)
def test_an_update_has_every_write_to_a_shown_key_in_its_order(written: Writes) -> None:
    update = Output(["x", "y"]).update(written)
    parts = update if isinstance(update, list) else [update or {}]

    assert [pair for part in parts for pair in part.items()] == [
        (key, value) for key, value in written if key in ("x", "y")
    ]
    assert update is None or all(parts), "no part is empty"


@given(writes)
def test_the_update_of_a_bare_output_has_every_value_of_its_key(written: Writes) -> None:
    values = [value for key, value in written if key == "x"]

    assert Output("x").update(written) == (values if len(values) > 1 else values[0] if values else None)


@pytest.mark.parametrize(
    ("written", "update"),
    [
        ([], None),
        ([("hidden", 1)], None),
        ([("x", 1), ("hidden", 2), ("y", 3)], {"x": 1, "y": 3}),
        ([("x", None)], {"x": None}),
        ([("x", 1), ("x", 2)], [{"x": 1}, {"x": 2}]),
        ([("x", 1), ("y", 2), ("x", 3)], [{"x": 1, "y": 2}, {"x": 3}]),
    ],
)
def test_an_update_is_a_dict_or_a_list_of_them_or_nothing(written: Writes, update: Any) -> None:
    assert Output(["x", "y"]).update(written) == update


@pytest.mark.parametrize("keys", ["x", ["x"]], ids=["bare", "keys"])
def test_containers_are_the_readers_to_change(keys: str | Sequence[str]) -> None:
    output, value = Output(keys), [1]
    state = ThreadState(chain(["a"]).compile().plan)
    state.write("x", [value])
    for shown in (output.of(state), output.update([("x", value)])):
        shown = shown if keys == "x" else shown["x"]
        assert shown == value
        shown.append(2)

    assert value == state.value("x", None) == [1]


def test_a_bare_output_that_has_no_value_is_none_and_a_dict_lacks_it() -> None:
    state = ThreadState(chain(["a"]).compile().plan)

    assert Output("x").of(state) is None
    assert Output(["x", "y"]).of(state) == {}


def test_runs_of_the_same_keys_share_one_output() -> None:
    assert output_of(("x", "y")) is output_of(("x", "y"))
    assert output_of(("x", "y")).names == {"x", "y"}
    assert output_of("x") is not output_of(("x",))
