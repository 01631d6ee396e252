import copy
import functools
import operator
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, MutableSet, Sequence
from collections.abc import Set as AbstractSet
from typing import Annotated, Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.channels import BinaryOperatorAggregate
from perdure.channels import binop as module
from perdure.channels.binop import unwrap_overwrite
from perdure.constants import MISSING
from perdure.data import Overwrite
from perdure.errors import EmptyChannelError, InvalidUpdateError
from perdure.testing.exact import exactly_equal


def extend_in_place(left: list[Any], right: list[Any]) -> list[Any]:
    left.extend(right)
    return left


def keep_newest(left: list[int], right: list[int]) -> list[int]:
    return [*left, *right][-3:]


class Tags(list[str]):
    """Adds without duplicates, which `+=`, being the list's own, does not."""

    def __add__(self, other: Any) -> Any:
        return Tags(dict.fromkeys([*self, *other]))


small_lists = st.lists(st.integers(0, 5), max_size=3)
small_sets = st.sets(st.integers(0, 5), max_size=3)
small_tags = st.lists(st.sampled_from("ab"), max_size=2, unique=True).map(Tags)
small_dicts = st.dictionaries(st.sampled_from("abc"), st.integers(), max_size=3)

ASSOCIATIVE: list[tuple[str, Any, Callable[[Any, Any], Any], st.SearchStrategy[Any]]] = [
    ("add ints", int, operator.add, st.integers()),
    ("add strings", str, operator.add, st.text(max_size=3)),
    ("add lists", list, operator.add, small_lists),
    ("add bytearrays", bytearray, operator.add, st.binary(max_size=3).map(bytearray)),
    ("or sets", set, operator.or_, small_sets),
    ("xor sets", set, operator.xor, small_sets),
    ("or dicts", dict, operator.or_, small_dicts),
    ("add counters", Counter, operator.add, st.lists(st.sampled_from("abc"), max_size=3).map(Counter)),
    ("extend in place", list, extend_in_place, small_lists),
    ("keep the newest", list, keep_newest, small_lists),
    ("max from no initial value", None, max, st.integers()),
]


@pytest.mark.parametrize(
    ("typ", "reducer", "values"), [case[1:] for case in ASSOCIATIVE], ids=[c[0] for c in ASSOCIATIVE]
)
@given(data=st.data())
def test_an_associative_reducer_gives_the_same_however_its_writes_are_batched(
    typ: Any, reducer: Callable[[Any, Any], Any], values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    supersteps = data.draw(st.lists(st.lists(values, max_size=4), max_size=4))
    channel: BinaryOperatorAggregate[Any] = BinaryOperatorAggregate(typ, reducer)
    for writes in supersteps:
        assert channel.update(copy.deepcopy(writes)) is bool(writes)

    initial = [] if typ is None else [typ()]
    written = [*initial, *(value for writes in supersteps for value in writes)]
    assert channel.is_available() is bool(written)
    if written:
        expected = functools.reduce(reducer, copy.deepcopy(written))
        assert channel.get() == expected
        assert type(channel.get()) is type(expected)


mixed_values = st.one_of(
    small_lists,
    small_lists.map(tuple),
    small_tags,
    small_sets,
    small_sets.map(frozenset),
    small_dicts,
    small_dicts.map(OrderedDict),
    small_lists.map(lambda items: deque(items, maxlen=4)),
    st.binary(max_size=2),
    st.binary(max_size=2).map(bytearray),
)
pure_operators = st.sampled_from(
    [operator.add, operator.or_, operator.and_, operator.sub, operator.xor, operator.mul]
)


@given(
    pure_operators,
    st.sampled_from([mixed_values, small_lists, small_tags, small_sets, small_dicts]).flatmap(
        lambda values: st.lists(values, min_size=2, max_size=4)
    ),
)
@example(operator.add, [Tags("a"), Tags("a")])
@example(operator.add, [[1], (2,)])
@example(operator.xor, [{1, 3}, {0, 3}, {0, 3}])
def test_operators_of_the_operator_module_mean_what_they_mean_elsewhere(
    reducer: Callable[[Any, Any], Any], values: list[Any]
) -> None:
    channel: BinaryOperatorAggregate[Any] = BinaryOperatorAggregate(None, reducer)
    before = copy.deepcopy(values)
    try:
        expected = functools.reduce(reducer, values)
    except TypeError:
        with pytest.raises(TypeError):
            channel.update(values)
    else:
        channel.update(values)
        assert exactly_equal(channel.get(), expected)
    assert values == before


@given(st.lists(st.lists(small_lists, min_size=1, max_size=3), min_size=1, max_size=4))
def test_a_reducer_that_changes_its_left_side_changes_nothing_that_was_seen_before(
    supersteps: list[list[list[int]]],
) -> None:
    channel: BinaryOperatorAggregate[list[int]] = BinaryOperatorAggregate(None, extend_in_place)
    before = copy.deepcopy(supersteps)
    known: list[tuple[Any, Any]] = []
    for writes in supersteps:
        channel.update(writes)
        handed_out = (channel.get(), channel.checkpoint(), channel.copy().get())
        known.extend((value, copy.deepcopy(value)) for value in handed_out)

    assert supersteps == before
    assert all(value == then for value, then in known)


def test_a_reducer_that_fails_half_way_through_its_writes_leaves_the_value_as_it_was() -> None:
    channel: BinaryOperatorAggregate[Any] = BinaryOperatorAggregate(list, extend_in_place)
    channel.update([[1]])

    with pytest.raises(TypeError):
        channel.update([[2], 3])

    assert channel.get() == [1]


@pytest.mark.parametrize(
    ("typ", "reducer", "write"),
    [(list, operator.add, [1]), (dict, operator.or_, {"a": 1}), (set, operator.or_, {1})],
)
def test_many_writes_of_one_builtin_type_cost_one_copy(
    typ: Any, reducer: Callable[[Any, Any], Any], write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[Any] = []

    def counted_copy(value: Any) -> Any:
        copies.append(value)
        return copy.copy(value)

    monkeypatch.setattr(module, "shallow_copy", counted_copy)
    channel: BinaryOperatorAggregate[Any] = BinaryOperatorAggregate(typ, reducer)

    channel.update([write] * 1_000)

    assert len(copies) == 1
    assert channel.get() == functools.reduce(reducer, [write] * 1_000)


@pytest.mark.parametrize(
    ("typ", "initial"),
    [
        (int, 0),
        (str, ""),
        (list, []),
        (list[int], []),
        (dict[str, int], {}),
        (Sequence, []),
        (Sequence[int], []),
        (MutableSequence[int], []),
        (AbstractSet[int], set()),
        (MutableSet, set()),
        (Mapping[str, int], {}),
        (MutableMapping, {}),
        (Annotated[Sequence[int], "of what"], []),
        (Counter[str], Counter()),
    ],
    ids=str,
)
def test_it_starts_from_the_empty_value_of_its_type(typ: Any, initial: Any) -> None:
    channel: BinaryOperatorAggregate[Any] = BinaryOperatorAggregate(typ, operator.add)

    assert channel.get() == initial
    assert type(channel.get()) is type(initial)


class Refusing:
    def __init__(self) -> None:
        raise RuntimeError("not like this")


@pytest.mark.parametrize(
    "typ", [int | None, Any, Literal["a"], range, Callable[[], int], Refusing, None], ids=str
)
def test_where_the_type_has_no_empty_value_the_first_write_is_taken_as_it_is(typ: Any) -> None:
    channel: BinaryOperatorAggregate[Any] = BinaryOperatorAggregate(
        typ, lambda left, right: (left, right), key="k"
    )
    with pytest.raises(EmptyChannelError, match="'k'"):
        channel.get()

    assert channel.update([1])
    assert channel.get() == 1
    channel.update([2])
    assert channel.get() == (1, 2)


def test_every_channel_starts_from_an_empty_value_of_its_own() -> None:
    first: BinaryOperatorAggregate[list[int]] = BinaryOperatorAggregate(list, operator.add)

    assert first.get() is not first.from_checkpoint(MISSING).get()


OVERWRITE_SPELLINGS: list[Callable[[Any], Any]] = [
    Overwrite,
    lambda value: {"__overwrite__": value},
    lambda value: {"type": "__overwrite__", "value": value},
    lambda value: {"value": value, "type": "__overwrite__"},
]
each_spelling = pytest.mark.parametrize("overwrite", OVERWRITE_SPELLINGS)


@each_spelling
@given(
    st.lists(small_lists, max_size=2),
    st.lists(small_lists, max_size=2),
    small_lists,
    st.sampled_from([list, None]),
)
def test_an_overwrite_replaces_the_value_and_all_other_writes_of_its_superstep(
    overwrite: Callable[[Any], Any], before: Any, after: Any, value: list[int], typ: Any
) -> None:
    channel: BinaryOperatorAggregate[Any] = BinaryOperatorAggregate(typ, operator.add)

    assert channel.update([*before, overwrite(value), *after])
    assert channel.get() == value
    channel.update([[7]])
    assert channel.get() == [*value, 7]


@each_spelling
@pytest.mark.parametrize("value", [None, [], 0, ""])
def test_an_overwrite_with_nothing_much_is_one_too(overwrite: Callable[[Any], Any], value: Any) -> None:
    channel: BinaryOperatorAggregate[Any] = BinaryOperatorAggregate(list, operator.add)
    channel.update([[1]])
    channel.update([overwrite(value)])

    assert channel.get() == value


@pytest.mark.parametrize("first", OVERWRITE_SPELLINGS)
@pytest.mark.parametrize("second", OVERWRITE_SPELLINGS)
def test_two_overwrites_in_a_superstep_are_refused_with_the_key(
    first: Callable[[Any], Any], second: Callable[[Any], Any]
) -> None:
    channel: BinaryOperatorAggregate[Any] = BinaryOperatorAggregate(list, operator.add, key="log")
    channel.update([[1]])

    with pytest.raises(InvalidUpdateError, match="At key 'log': Can receive only one Overwrite"):
        channel.update([first([2]), [3], second([2])])

    assert channel.get() == [1]


@pytest.mark.parametrize(
    "write",
    [
        {},
        {"a": 1},
        {"type": "__overwrite__"},
        {"type": ["__overwrite__"], "value": 1},
        {"type": "text", "value": 1},
        {"__overwrite__": 1, "a": 2},
        ["__overwrite__", 1],
        "__overwrite__",
    ],
    ids=str,
)
def test_what_only_resembles_an_overwrite_is_an_ordinary_value(write: Any) -> None:
    assert unwrap_overwrite(write) is MISSING


def test_a_callable_object_without_a_hash_can_reduce() -> None:
    class Reducer:
        __hash__ = None  # type: ignore[assignment]  # what a plain dataclass has

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Reducer)

        def __call__(self, left: int, right: int) -> int:
            return left + right

    channel: BinaryOperatorAggregate[int] = BinaryOperatorAggregate(int, Reducer())
    channel.update([1, 2])

    assert channel.get() == 3
    assert channel == BinaryOperatorAggregate(int, Reducer())


def test_channels_are_equal_when_their_reducers_are_or_one_is_a_lambda() -> None:
    add: BinaryOperatorAggregate[Any] = BinaryOperatorAggregate(list, operator.add, key="a")
    anonymous: BinaryOperatorAggregate[Any] = BinaryOperatorAggregate(list, lambda left, right: left)

    assert add == BinaryOperatorAggregate(str, operator.add, key="b")
    assert add == anonymous
    assert anonymous == add
    assert add != BinaryOperatorAggregate(list, operator.or_)


def test_what_was_written_stays_the_writers() -> None:
    for write in ([1], Overwrite([1]), {"__overwrite__": [1]}):
        channel: BinaryOperatorAggregate[Any] = BinaryOperatorAggregate(list, lambda left, right: right)
        kept: Any = write.value if isinstance(write, Overwrite) else write
        kept = kept["__overwrite__"] if isinstance(kept, dict) else kept
        channel.update([write])
        kept.append(2)
        assert channel.get() == [1]
