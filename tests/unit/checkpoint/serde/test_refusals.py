"""Values that would not come back equal and of the same type are refused, naming place, value and reason."""

from __future__ import annotations

import enum
import re
import sys
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from fractions import Fraction
from ipaddress import ip_address, ip_network
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from pydantic import BaseModel, Field, PrivateAttr

from perdure.checkpoint.serde import JsonSerializer
from perdure.checkpoint.serde.tags import MAX_LEVELS
from perdure.data import Command, Overwrite, Send
from perdure.errors import InvalidPayloadError, UnserializableValueError

SERDE = JsonSerializer()


class Color(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Word(enum.StrEnum):
    YES = "yes"


class Point(NamedTuple):
    x: int
    y: int


Pair = namedtuple("Pair", ["a", "b"])


@dataclass
class Job:
    name: str
    total: int = field(init=False, default=0)


class Model(BaseModel):
    name: str = Field(alias="n")
    _hidden: int = PrivateAttr(default=1)


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Real(float):
    pass


class Items(list[Any]):
    pass


class Stamp(datetime):
    pass


class Ident(UUID):
    pass


class OddZone(tzinfo):
    def utcoffset(self, at: datetime | None) -> timedelta:
        return timedelta(0)

    def dst(self, at: datetime | None) -> None:
        return None

    def tzname(self, at: datetime | None) -> str:
        return "odd"


class Nobody:
    """Of a class that nobody registered."""

    __hash__ = object.__hash__


# value, the type that is named, what the remedy proposes
REFUSED: list[tuple[Any, str, str]] = [
    (Color.RED, "Color", "store its .value"),
    (Level.LOW, "Level", "store its .value"),
    (Word.YES, "Word", "store its .value"),
    (Point(1, 2), "Point", "store a plain tuple instead"),
    (Pair(1, 2), "Pair", "store a plain tuple instead"),
    (Job("x"), "Job", "store dataclasses.asdict(value)"),
    (Model(n="x"), "Model", "store value.model_dump()"),
    (Text("x"), "Text", "store a plain str instead"),
    (Number(1), "Number", "store a plain int instead"),
    (Real(1), "Real", "store a plain float instead"),
    (Items(), "Items", "store a plain list instead"),
    (Stamp(2025, 1, 1), "Stamp", "store a plain datetime instead"),
    (Ident(int=1), "Ident", "store a plain UUID instead"),
    (OrderedDict(a=1), "collections.OrderedDict", "store a plain dict instead"),
    (defaultdict(list), "collections.defaultdict", "store a plain dict instead"),
    (Counter("aab"), "collections.Counter", "store a plain dict instead"),
    (deque([1], maxlen=3), "collections.deque", "store list(value)"),
    (bytearray(b"x"), "bytearray", "store bytes(value)"),
    (memoryview(b"x"), "memoryview", "store bytes(value)"),
    (Fraction(1, 3), "fractions.Fraction", "store its numerator and denominator"),
    (range(3), "range", "store list(value)"),
    (slice(1, 2), "slice", "store its start, stop and step"),
    (re.compile("a+"), "re.Pattern", "store its pattern and flags"),
    (ip_address("127.0.0.1"), "ipaddress.IPv4Address", "store str(value)"),
    (ip_address("::1"), "ipaddress.IPv6Address", "store str(value)"),
    (ip_network("10.0.0.0/8"), "ipaddress.IPv4Network", "store str(value)"),
    (ValueError("x"), "ValueError", "store str(value)"),
    (Nobody(), "Nobody", "store the standard values it is made from"),
    (Nobody, "type", "keep functions and classes out of the state"),
    (lambda: None, "function", "keep functions and classes out of the state"),
    (len, "builtin_function_or_method", "keep functions and classes out of the state"),
    (Command(), "perdure.data.Command", "store dataclasses.asdict(value)"),
    (object(), "object", "store the standard values it is made from"),
]


def refusal(value: Any) -> str:
    with pytest.raises(UnserializableValueError) as caught:
        SERDE.dumps(value)
    return str(caught.value)


@pytest.mark.parametrize(("value", "kind", "remedy"), REFUSED, ids=[kind for _, kind, _ in REFUSED])
def test_refused_naming_type_and_remedy(value: Any, kind: str, remedy: str) -> None:
    message = refusal(value)
    assert re.match(
        rf"the value has type \S*\b{re.escape(kind)}, which would not come back as it is; ", message
    )
    assert f"; {remedy}" in message


@pytest.mark.parametrize(("value", "kind", "remedy"), REFUSED, ids=[kind for _, kind, _ in REFUSED])
def test_refused_inside_every_container(value: Any, kind: str, remedy: str) -> None:
    assert refusal([0, value]).startswith("the value at [1] has type ")
    assert refusal((0, value)).startswith("the value at [1] has type ")
    assert refusal({"a": value}).startswith('the value at ["a"] has type ')
    assert refusal({1: 0, 2: value}).startswith("the value at [2] has type ")
    assert refusal(Send("node", value)).startswith("the value at .arg has type ")
    assert refusal(Overwrite(value)).startswith("the value at .value has type ")
    assert refusal({"a": [0, 1, 2, ({"b": value},)]}).startswith('the value at ["a"][3][0]["b"] has type ')


@pytest.mark.parametrize(
    "key",
    [Color.RED, Level.LOW, Word.YES, Point(1, 2), Text("x"), Number(1), Fraction(1, 3), Nobody()],
    ids=repr,
)
def test_refused_as_a_key_and_as_an_element(key: Any) -> None:
    assert refusal({"a": {key: 1}}).startswith('the value at ["a"].keys() has type ')
    assert refusal([{key}]).startswith("the value at [0]{…} has type ")
    assert refusal([frozenset({key})]).startswith("the value at [0]{…} has type ")


def test_the_path_bears_with_any_key() -> None:
    assert refusal({"a": {'say "x"': Nobody()}}).startswith("""the value at ["a"]['say "x"'] has type """)
    assert refusal({1 << 20_000: Nobody()}).startswith("the value at […] has type ")
    assert refusal({(1, "a"): Nobody()}).startswith("the value at [(1, 'a')] has type ")
    assert refusal({"k" * 80: Nobody()}).startswith(f'the value at ["{"k" * 56}…] has type ')


def test_a_long_path_is_cut() -> None:
    assert refusal(nest(lambda value: [value or Nobody()], 8)).startswith(
        f"the value at {'[0]' * 8} has type "
    )
    assert refusal(nest(lambda value: [value or Nobody()], 9)).startswith(
        f"the value at {'[0]' * 8}… has type "
    )


def test_refused_where_it_equals_a_plain_key_beside_it() -> None:
    assert refusal([{"x": 1}, {Text("x"): 1}]).startswith("the value at [1].keys() has type ")


def test_refused_send_to_a_node_whose_name_is_no_plain_string() -> None:
    assert refusal([Send(Word.YES, None)]).startswith("the value at [0].node has type ")


def test_an_open_file_is_refused() -> None:
    with open(sys.executable, "rb") as file:
        assert refusal({"files": [file]}).startswith('the value at ["files"][0] has type _io.BufferedReader')


@pytest.mark.parametrize(
    "zone", [OddZone(), ZoneInfo.no_cache("Europe/Berlin")], ids=["foreign", "not cached"]
)
def test_a_time_zone_that_cannot_be_found_again_is_refused(zone: tzinfo) -> None:
    message = refusal([datetime(2025, 1, 1, tzinfo=zone)])
    assert message.startswith("the value at [0] has a tzinfo of type ")
    assert message.endswith("; use datetime.timezone or zoneinfo.ZoneInfo(key)")


@pytest.mark.skipif(
    str(PureWindowsPath("./c:x")) != "c:x",
    reason="from Python 3.12 on the text of every path names that path",
)
def test_a_path_that_its_text_does_not_name_is_refused() -> None:
    assert (
        refusal(PureWindowsPath("./c:x"))
        == "the value is a path that 'c:x' does not name; store its parts instead"
    )


def nest(wrap: Callable[[Any], Any], times: int) -> Any:
    value: Any = 0
    for _ in range(times):
        value = wrap(value)
    return value


@pytest.mark.parametrize(
    ("wrap", "levels"),
    [
        (lambda value: [value], 1),
        (lambda value: {"k": value}, 1),
        (lambda value: (value,), 3),
        (lambda value: frozenset([value]), 3),
        (lambda value: {1: value}, 4),
        (lambda value: Send("n", value), 3),
        (Overwrite, 3),
    ],
    ids=["list", "dict", "tuple", "frozenset", "pairs", "Send", "Overwrite"],
)
def test_nesting_is_refused_exactly_where_json_ends(wrap: Callable[[Any], Any], levels: int) -> None:
    SERDE.loads(SERDE.dumps(nest(wrap, MAX_LEVELS // levels)))
    message = refusal(nest(wrap, MAX_LEVELS // levels + 1))
    assert "… is nested too deeply (254 levels of JSON at most" in message
    assert message.endswith("; store it in a flatter form")


@pytest.mark.parametrize("leaf", [b"x", 2**64, "\ud800", float("nan")], ids=ascii)
def test_a_tag_needs_two_levels(leaf: Any) -> None:
    SERDE.dumps(nest(lambda value: [value or leaf], MAX_LEVELS - 2))
    assert "nested too deeply" in refusal(nest(lambda value: [value or leaf], MAX_LEVELS - 1))


def test_a_list_300_deep_is_refused_by_a_message_of_bounded_length() -> None:
    message = refusal({"x" * 1_000: nest(lambda value: [value], 300)})
    assert "nested too deeply" in message
    assert len(message) < 300


def test_a_value_that_contains_itself_is_refused_and_says_where() -> None:
    direct: list[Any] = [1]
    direct.append(direct)
    assert refusal(direct).startswith("the value at [1] contains itself; ")
    circle: dict[str, Any] = {"next": {}}
    circle["next"]["back"] = circle
    assert refusal([circle]).startswith('the value at [0]["next"]["back"] contains itself; ')
    through_tuple: list[Any] = []
    through_tuple.append((through_tuple,))
    assert refusal(through_tuple).startswith("the value at [0][0] contains itself; ")


@pytest.mark.parametrize("times", [2, 2_000])
def test_a_value_that_contains_itself_many_times_is_refused_soon(times: int) -> None:
    value: list[Any] = []
    value.extend([value] * times)
    assert "contains itself" in refusal(value)


def test_one_object_in_two_places_does_not_contain_itself() -> None:
    shared = (1, [2])
    assert SERDE.loads(SERDE.dumps([shared, {"again": shared}])) == [shared, {"again": shared}]


# Reading


MALFORMED = [
    b"",
    b"{",
    b"NaN",
    b"\xff",
    b"[1] trailing",
    b'{"$perdure": 1}',
    b'{"$perdure": []}',
    b'{"$perdure": ["tuple"]}',
    b'{"$perdure": ["tuple", [], []]}',
    b'{"$perdure": [["tuple"], []]}',
    b'{"$perdure": ["tuple", []], "more": 1}',
    b'{"$perdure": ["tuple", "abc"]}',
    b'{"$perdure": ["tuple", {"a": 1}]}',
    b'{"$perdure": ["tuple", 1]}',
    b'{"$perdure": ["set", [[1]]]}',
    b'{"$perdure": ["set", "abc"]}',
    b'{"$perdure": ["frozenset", null]}',
    b'{"$perdure": ["dict", [[[1], 2]]]}',
    b'{"$perdure": ["dict", [[1]]]}',
    b'{"$perdure": ["dict", ["ab"]]}',
    b'{"$perdure": ["bytes", "A"]}',
    b'{"$perdure": ["bytes", "!!!!"]}',
    b'{"$perdure": ["bytes", 1]}',
    b'{"$perdure": ["str", "/w=="]}',
    b'{"$perdure": ["int", "xyz"]}',
    b'{"$perdure": ["int", 5]}',
    b'{"$perdure": ["float", "1.5"]}',
    b'{"$perdure": ["float", [1]]}',
    b'{"$perdure": ["complex", [1, 2]]}',
    b'{"$perdure": ["complex", [1.0]]}',
    b'{"$perdure": ["complex", [1.0, 2]]}',
    b'{"$perdure": ["complex", [1, 2.0]]}',
    b'{"$perdure": ["Decimal", "abc"]}',
    b'{"$perdure": ["Decimal", 1.5]}',
    b'{"$perdure": ["UUID", "1"]}',
    b'{"$perdure": ["UUID", 1]}',
    b'{"$perdure": ["date", "yesterday"]}',
    b'{"$perdure": ["date", 1]}',
    b'{"$perdure": ["timedelta", [1, 2]]}',
    b'{"$perdure": ["timedelta", [1, 2, 0.5]]}',
    b'{"$perdure": ["timedelta", [9999999999, 0, 0]]}',
    b'{"$perdure": ["datetime", ["2025-01-01T00:00:00", 0]]}',
    b'{"$perdure": ["datetime", ["2025-01-01T00:00:00", 7, null]]}',
    b'{"$perdure": ["datetime", ["2025-01-01T00:00:00", 0, "No/Such_Place"]]}',
    b'{"$perdure": ["datetime", ["2025-01-01T00:00:00", 0, "../../etc/passwd"]]}',
    b'{"$perdure": ["datetime", ["2025-01-01T00:00:00", 0, "America"]]}',
    b'{"$perdure": ["datetime", ["2025-01-01T00:00:00", 0, "x.y/z"]]}',
    b'{"$perdure": ["datetime", ["2025-01-01T00:00:00", 0, [9, 0, 0]]]}',
    b'{"$perdure": ["time", ["12:00:00", 0, [0, 0, 0, "a", "b"]]]}',
    b'{"$perdure": ["PurePosixPath", 1]}',
    b'{"$perdure": ["Send", ["node"]]}',
    b'{"$perdure": ["Send", [1, 2]]}',
    b'{"$perdure": ["Send", ["node", 1, 2, 3]]}',
    b'{"$perdure": ["TimeoutPolicy", [1]]}',
    b'{"$perdure": ["Overwrite", 1]}',
    b'{"$perdure": ["Overwrite", []]}',
    b'{"$perdure": ["Color", "red"]}',
    b'[{"deep": {"$perdure": ["nothing", {"$perdure": ["tuple", []]}]}}]',
    b"[" * 1_025 + b"]" * 1_025,
]


@pytest.mark.parametrize(
    "payload",
    MALFORMED,
    ids=lambda payload: payload[:60].decode("latin-1"),
)
def test_bytes_that_no_value_was_stored_as_are_refused(payload: bytes) -> None:
    with pytest.raises(InvalidPayloadError):
        SERDE.loads(payload)


@pytest.mark.parametrize("key", ["../../etc/passwd", "x.y/z", "/etc/passwd", "a//b", ""])
def test_no_file_or_package_is_looked_for_because_a_row_names_it_as_a_zone(key: str) -> None:
    payload = b'{"$perdure": ["datetime", ["2025-01-01T00:00:00", 0, "%s"]]}' % key.encode()
    with pytest.raises(InvalidPayloadError, match="is not the key of a time zone"):
        SERDE.loads(payload)


def test_tags_nested_deeper_than_python_follows_are_refused() -> None:
    payload = b'{"a":[' * 500 + b'{"$perdure": ["tuple", []]}' + b"]}" * 500
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(400)
    try:
        with pytest.raises(InvalidPayloadError, match="nested too deeply"):
            SERDE.loads(payload)
    finally:
        sys.setrecursionlimit(limit)


def test_a_value_too_deep_for_the_stack_that_is_left_is_refused() -> None:
    value = nest(lambda value: (value,), 80)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(150)
    try:
        with pytest.raises(UnserializableValueError, match="nested too deeply to be stored from here"):
            SERDE.dumps(value)
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize(
    "name", ["os.system", "this", "antigravity", "perdure.data.Command", "builtins.eval", "eval"]
)
def test_nothing_is_imported_or_called_because_a_row_says_so(name: str) -> None:
    before = set(sys.modules)
    payload = b'{"$perdure": ["%s", ["true"]]}' % name.encode()
    with pytest.raises(InvalidPayloadError, match=f"the tag '{re.escape(name)}', which this version"):
        SERDE.loads(payload)
    assert set(sys.modules) == before


def test_a_foreign_constructor_is_only_data() -> None:
    assert SERDE.loads(b'{"type": "os.system", "args": ["true"]}') == {"type": "os.system", "args": ["true"]}


def test_the_caller_can_put_the_state_key_in_front() -> None:
    assert f"State key 'jobs': {refusal([Color.RED])}".startswith(
        "State key 'jobs': the value at [0] has type "
    )


def test_paths_of_pure_and_concrete_kinds_are_told_apart() -> None:
    assert type(SERDE.loads(SERDE.dumps(PurePosixPath("a")))) is PurePosixPath
