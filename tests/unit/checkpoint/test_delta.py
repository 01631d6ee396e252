"""Whatever becomes of a list, its rows give it back; and they are not many times what it holds."""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.checkpoint.base import BlobRow
from perdure.checkpoint.delta import MINIMUM, Record, carried_by, encode_list, marks_of, rebuild
from perdure.checkpoint.serde import JsonSerializer
from perdure.data import Overwrite

SERDE = JsonSerializer()

BY_IDENTITY = pytest.mark.parametrize("by_identity", [True, False], ids=["carried", "encoded"])


class Chain:
    """A list as a thread holds it, and the rows of all its versions."""

    def __init__(self, *, by_identity: bool) -> None:
        self.by_identity = by_identity
        self.value: list[Any] = []
        self.carried: set[int] = set()
        self.rows: dict[str, BlobRow] = {}
        self.versions: dict[str, bytes] = {}
        self.record: Record | None = None

    def store(self) -> None:
        version = f"{len(self.rows):010}"
        carried = self.carried if self.by_identity else None
        place = ("", "k", version)
        self.rows[version], self.record = encode_list(SERDE, place, self.value, self.record, carried)
        self.versions[version] = SERDE.dumps(self.value)
        self.carried = set()

    def reopen(self) -> None:
        """Go on from what is stored, as the next run does."""
        if self.record is not None:
            self.value, base = rebuild("k", self.record.base.version, self.rows, SERDE.loads)
            assert base == self.record.base
            assert base is not None
            self.record = Record(base, marks_of(SERDE, self.value, by_identity=self.by_identity))

    def check(self) -> None:
        for version, encoded in self.versions.items():
            rebuilt, _ = rebuild("k", version, self.rows, SERDE.loads)
            assert SERDE.dumps(rebuilt) == encoded


texts = st.sampled_from(["", "some", "x" * 900, "y" * 9_000])
elements = st.one_of(st.integers(0, 3), texts, texts.map(lambda text: {"text": text}))
lists = st.lists(elements, max_size=4)
places = st.lists(st.integers(0, 11), max_size=3)
changes = st.one_of(
    st.tuples(st.just("append"), lists),
    st.tuples(st.just("append"), lists),
    st.tuples(st.just("replace"), lists),
    st.tuples(st.just("truncate"), st.integers(0, 11)),
    st.tuples(st.just("reorder"), st.integers(0, 11)),
    st.tuples(st.just("change"), places),
    st.tuples(st.just("change and append"), places),
    st.tuples(st.just("reopen"), st.none()),
)


def change(chain: Chain, what: str, argument: Any, number: int) -> None:
    """Change a list as reducers, overwrites and nodes do from one version to the next."""
    if what == "append":
        chain.value = [*chain.value, *argument]
    elif what == "replace":
        chain.value = list(argument)
    elif what == "truncate":
        chain.value = chain.value[:argument]
    elif what == "reorder":
        chain.value = [*chain.value[argument:], *chain.value[:argument]]
    elif what == "reopen":
        chain.reopen()
    else:
        chain.value = chain.value.copy()
        for element in [element for i, element in enumerate(chain.value) if i in argument]:
            if isinstance(element, dict):
                element["changed"] = number
                chain.carried.add(id(element))
                if what == "change and append":
                    chain.value.append(element)


@BY_IDENTITY
@hypothesis.settings(max_examples=200)
@given(st.lists(changes, max_size=12))
def test_every_version_comes_back_as_it_was(by_identity: bool, sequence: list[tuple[str, Any]]) -> None:
    chain = Chain(by_identity=by_identity)
    for number, (what, argument) in enumerate(sequence):
        change(chain, what, argument, number)
        chain.store()
    chain.check()


@BY_IDENTITY
@given(st.lists(st.lists(texts.map(lambda text: {"text": text}), min_size=1, max_size=3), max_size=40))
def test_a_list_that_only_grows_is_stored_at_most_three_times(
    by_identity: bool, growth: list[list[Any]]
) -> None:
    chain = Chain(by_identity=by_identity)
    for added in growth:
        chain.value = [*chain.value, *added]
        chain.store()

    payload = len(SERDE.dumps(chain.value))
    assert sum(len(row.payload) for row in chain.rows.values()) <= 3 * payload + MINIMUM


@BY_IDENTITY
def test_hundreds_of_small_messages_cost_few_snapshots(by_identity: bool) -> None:
    chain = Chain(by_identity=by_identity)
    for number in range(600):
        chain.value = [*chain.value, {"number": number, "text": "x" * 100}]
        chain.store()
    payload = len(SERDE.dumps(chain.value))
    snapshots = [row for row in chain.rows.values() if row.base is None]

    assert sum(len(row.payload) for row in chain.rows.values()) <= 3 * payload + MINIMUM
    assert 2 <= len(snapshots) <= 5
    chain.check()


def test_what_is_written_is_carried_alone_in_a_list_and_in_an_overwrite() -> None:
    one, two, three, four, other = [dict[str, int]() for _ in range(5)]
    writes = [
        ("k", [one, "text", 1]),
        ("k", two),
        ("k", Overwrite([three])),
        ("k", {"__overwrite__": [four]}),
        ("other", [other]),
    ]

    carried = carried_by(writes, frozenset({"k"}))
    assert carried == {"k": {id(one), id(two), id(three), id(four)}}
