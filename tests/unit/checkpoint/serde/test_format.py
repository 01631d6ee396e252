"""Format 1 as it is on disk. What was written once is read for ever: lines may be added, none changed."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from perdure.checkpoint.serde import JsonSerializer
from perdure.data import Overwrite, Send, TimeoutPolicy
from perdure.testing.exact import exactly_equal

SERDE = JsonSerializer()
AT = datetime(2025, 10, 26, 2, 30, 0, 1)  # noqa: DTZ001  # naive ones are stored too

GOLDEN: list[tuple[Any, str]] = [
    ({"a": [1, -0.0, 1e22, "é\x00", None, True]}, '{"a":[1,-0.0,1e+22,"é\\u0000",null,true]}'),
    (float("nan"), '{"$perdure":["float","nan"]}'),
    (float("-inf"), '{"$perdure":["float","-inf"]}'),
    (2**64 - 1, "18446744073709551615"),
    (2**64, '{"$perdure":["int","0x10000000000000000"]}'),
    (-(2**63), "-9223372036854775808"),
    (-(2**63) - 1, '{"$perdure":["int","-0x8000000000000001"]}'),
    ("a\ud800", '{"$perdure":["str","Ye2ggA=="]}'),
    (b"\x00\xff", '{"$perdure":["bytes","AP8="]}'),
    (complex(-0.0, 2), '{"$perdure":["complex",[-0.0,2.0]]}'),
    (Decimal("1.10"), '{"$perdure":["Decimal","1.10"]}'),
    (UUID(int=1), '{"$perdure":["UUID","00000000-0000-0000-0000-000000000001"]}'),
    (AT, '{"$perdure":["datetime",["2025-10-26T02:30:00.000001",0,null]]}'),
    (
        AT.replace(tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
        '{"$perdure":["datetime",["2025-10-26T02:30:00.000001",1,"Europe/Berlin"]]}',
    ),
    (AT.replace(tzinfo=UTC), '{"$perdure":["datetime",["2025-10-26T02:30:00.000001",0,[0,0,0]]]}'),
    (
        AT.replace(tzinfo=timezone(timedelta(hours=-5), "EST")),
        '{"$perdure":["datetime",["2025-10-26T02:30:00.000001",0,[-1,68400,0,"EST"]]]}',
    ),
    (date(2025, 1, 2), '{"$perdure":["date","2025-01-02"]}'),
    (time(1, 2, 3), '{"$perdure":["time",["01:02:03",0,null]]}'),
    (timedelta(days=-1, seconds=2, microseconds=3), '{"$perdure":["timedelta",[-1,2,3]]}'),
    (PurePosixPath("a/b"), '{"$perdure":["PurePosixPath","a/b"]}'),
    (PureWindowsPath("a/b"), '{"$perdure":["PureWindowsPath","a\\\\b"]}'),
    (Path("a"), f'{{"$perdure":["{type(Path()).__name__}","a"]}}'),
    ((1, ("é",)), '{"$perdure":["tuple",[1,{"$perdure":["tuple",["é"]]}]]}'),
    ({1}, '{"$perdure":["set",[1]]}'),
    (frozenset(), '{"$perdure":["frozenset",[]]}'),
    ({1: "a", "b": (), None: 2}, '{"$perdure":["dict",[[1,"a"],["b",{"$perdure":["tuple",[]]}],[null,2]]]}'),
    ({"$perdure": {"é": [1]}, "a": 1}, '{"$perdure":["dict",[["$perdure",{"é":[1]}],["a",1]]]}'),
    ({"\ud800": 1}, '{"$perdure":["dict",[[{"$perdure":["str","7aCA"]},1]]]}'),
    (Send("node", {"a": (1,)}), '{"$perdure":["Send",["node",{"a":{"$perdure":["tuple",[1]]}}]]}'),
    (Send("node", None, timeout=1.5), '{"$perdure":["Send",["node",null,1.5]]}'),
    (
        Send("node", 1, timeout=timedelta(seconds=2)),
        '{"$perdure":["Send",["node",1,{"$perdure":["timedelta",[0,2,0]]}]]}',
    ),
    (
        Send("node", 1, timeout=TimeoutPolicy(idle_timeout=3, refresh_on="heartbeat")),
        '{"$perdure":["Send",["node",1,{"$perdure":["TimeoutPolicy",[null,3,"heartbeat"]]}]]}',
    ),
    (Overwrite([1]), '{"$perdure":["Overwrite",[[1]]]}'),
]


@pytest.mark.parametrize(("value", "text"), GOLDEN, ids=[ascii(text) for _, text in GOLDEN])
def test_the_payload_of(value: Any, text: str) -> None:
    assert SERDE.dumps(value) == text.encode()
    assert exactly_equal(SERDE.loads(text.encode()), value)


def test_what_stands_beside_a_tagged_value_stays_plain() -> None:
    value = {"plain": {"é": [1, "é", 0.5, None, {"k": True}]}, "tagged": (), "ints": [-(2**63), 2**64 - 1]}
    text = (
        '{"plain":{"é":[1,"é",0.5,null,{"k":true}]},"tagged":{"$perdure":["tuple",[]]},'
        '"ints":[-9223372036854775808,18446744073709551615]}'
    )
    assert SERDE.dumps(value) == text.encode()


def test_the_number_of_the_format() -> None:
    assert SERDE.format == 1
