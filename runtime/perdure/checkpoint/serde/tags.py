"""Tags: values that JSON does not have, written in JSON.

A tagged value is an object with one key, `{"$perdure": [name, payload]}`. Each tag names exactly one
type. Payloads are JSON, or hold tagged values themselves.

Names that were written once are read for ever: add tags, never change one.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, InvalidOperation
from math import isnan
from pathlib import PosixPath, PurePath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import Any, Final, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

from perdure.checkpoint.serde.refusals import RefusedError, index_step, type_name
from perdure.data import Overwrite, Send, TimeoutPolicy

TAG: Final = "$perdure"

MAX_LEVELS: Final = 254
"""The levels of nesting that orjson writes. A tag takes two, beside those of its payload."""

_ZONE_KEY: Final = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*")
_EXACT_DECIMAL: Final = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[InvalidOperation])
_NOT_FINITE: Final = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


class Tag(NamedTuple):
    """One type in JSON.

    Attributes:
        take: returns the payload of a value, which may hold values that are tagged in turn.
        give: returns the value of a payload, whose own tags are resolved already. It may raise anything for a
            payload that `take` does not make; the reader turns that into InvalidPayloadError.
    """

    name: str
    take: Callable[[Any], Any]
    give: Callable[[Any], Any]


class ContainerTag(NamedTuple):
    """One type of container in JSON; its payload is the list of its items.

    Attributes:
        take: returns the items of a value.
        step: returns the place of the item with a number, for messages. Sets have no places.
    """

    name: str
    take: Callable[[Any], Iterable[Any]]
    give: Callable[[list[Any]], Any]
    step: Callable[[int], str]


def _text(payload: Any) -> str:
    if type(payload) is not str:
        raise TypeError(f"a string was expected, not {payload!r:.100}")
    return payload


def _list(payload: Any, length: int | None = None) -> list[Any]:
    if type(payload) is not list or length not in (None, len(payload)):
        raise TypeError(f"a list{f' of {length}' if length else ''} was expected, not {payload!r:.100}")
    return payload


def _integers(payload: Any, length: int) -> list[int]:
    if any(type(item) is not int for item in _list(payload, length)):
        raise TypeError(f"integers were expected, not {payload!r:.100}")
    return list(payload)


# Scalars


def _take_float(value: float) -> str:
    return "nan" if isnan(value) else "inf" if value > 0 else "-inf"


def _give_complex(payload: Any) -> complex:
    real, imag = _list(payload, 2)
    if type(real) is not float or type(imag) is not float:
        raise TypeError(f"floats were expected, not {payload!r:.100}")
    return complex(real, imag)


def _take_text(value: str) -> str:
    return _take_bytes(value.encode("utf-8", "surrogatepass"))


def _give_text(payload: Any) -> str:
    return _give_bytes(payload).decode("utf-8", "surrogatepass")


def _take_bytes(value: bytes) -> str:
    return b64encode(value).decode("ascii")


def _give_bytes(payload: Any) -> bytes:
    return b64decode(_text(payload), validate=True)


# Time


def _take_zone(zone: tzinfo | None) -> Any:
    """Return None, an IANA key, or a fixed offset: days, seconds, microseconds and the name if any."""
    if zone is None:
        return None
    if type(zone) is timezone:
        offset, name = zone.utcoffset(None), zone.tzname(None)
        return [*_take_timedelta(offset), *([] if name == timezone(offset).tzname(None) else [name])]
    if type(zone) is ZoneInfo and _ZONE_KEY.fullmatch(zone.key or "") and ZoneInfo(zone.key) is zone:
        return zone.key
    raise RefusedError(
        f"has a tzinfo of type {type_name(type(zone))} that cannot be found again by name",
        "use datetime.timezone or zoneinfo.ZoneInfo(key)",
    )


def _give_zone(payload: Any) -> tzinfo | None:
    if payload is None:
        return None
    if type(payload) is str:
        if not _ZONE_KEY.fullmatch(payload):
            raise ValueError(f"{payload!r:.100} is not the key of a time zone")
        return ZoneInfo(payload)
    offset = _give_timedelta(_list(payload)[:3])
    return timezone(offset, *map(_text, payload[3:]))


def _take_clock(value: datetime | time) -> list[Any]:
    return [value.replace(tzinfo=None).isoformat(), value.fold, _take_zone(value.tzinfo)]


def _give_datetime(payload: Any) -> datetime:
    text, fold, zone = _list(payload, 3)
    return datetime.fromisoformat(_text(text)).replace(fold=fold, tzinfo=_give_zone(zone))


def _give_time(payload: Any) -> time:
    text, fold, zone = _list(payload, 3)
    return time.fromisoformat(_text(text)).replace(fold=fold, tzinfo=_give_zone(zone))


def _take_timedelta(value: timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


def _give_timedelta(payload: Any) -> timedelta:
    return timedelta(*_integers(payload, 3))


# Paths


def _path(kind: type[PurePath]) -> Tag:
    def take(value: PurePath) -> str:
        text = str(value)
        if kind(text) != value:
            raise RefusedError(f"is a path that {text!r} does not name", "store its parts instead")
        return text

    return Tag(kind.__name__, take, lambda payload: kind(_text(payload)))


# Containers and the engine's own


def _give_dict(payload: Any) -> dict[Any, Any]:
    return dict(_list(pair, 2) for pair in _list(payload))


def _take_send(value: Send) -> tuple[Any, ...]:
    """Return the items of a Send. One without a timeout is written as before there were timeouts."""
    return (value.node, value.arg) if value.timeout is None else (value.node, value.arg, value.timeout)


def _give_send(payload: list[Any]) -> Send:
    node, arg, *timeout = _list(payload)
    return Send(_text(node), arg, timeout=_list(timeout, 1)[0]) if timeout else Send(_text(node), arg)


def _take_timeout_policy(value: TimeoutPolicy) -> tuple[Any, ...]:
    return value.run_timeout, value.idle_timeout, value.refresh_on


def _give_timeout_policy(payload: list[Any]) -> TimeoutPolicy:
    run, idle, refresh_on = _list(payload, 3)
    return TimeoutPolicy(run_timeout=run, idle_timeout=idle, refresh_on=refresh_on)


def _give_overwrite(payload: list[Any]) -> Overwrite:
    return Overwrite(*_list(payload, 1))


FLOAT: Final = Tag("float", _take_float, lambda payload: _NOT_FINITE[payload])
INT: Final = Tag("int", hex, lambda payload: int(_text(payload), 16))
STR: Final = Tag("str", _take_text, _give_text)
DICT: Final = Tag("dict", lambda value: value.items(), _give_dict)

LEAVES: Final[dict[type, Tag]] = {
    bytes: Tag("bytes", _take_bytes, _give_bytes),
    complex: Tag("complex", lambda value: [value.real, value.imag], _give_complex),
    Decimal: Tag("Decimal", str, lambda payload: Decimal(_text(payload), _EXACT_DECIMAL)),
    UUID: Tag("UUID", str, lambda payload: UUID(_text(payload))),
    datetime: Tag("datetime", _take_clock, _give_datetime),
    date: Tag("date", date.isoformat, lambda payload: date.fromisoformat(_text(payload))),
    time: Tag("time", _take_clock, _give_time),
    timedelta: Tag("timedelta", _take_timedelta, _give_timedelta),
    **{kind: _path(kind) for kind in (PurePosixPath, PureWindowsPath, PosixPath, WindowsPath)},
}

CONTAINERS: Final[dict[type, ContainerTag]] = {
    tuple: ContainerTag("tuple", iter, lambda payload: tuple(_list(payload)), index_step),
    set: ContainerTag("set", iter, lambda payload: set(_list(payload)), lambda index: "{…}"),
    frozenset: ContainerTag(
        "frozenset", iter, lambda payload: frozenset(_list(payload)), lambda index: "{…}"
    ),
    Send: ContainerTag("Send", _take_send, _give_send, (".node", ".arg", ".timeout").__getitem__),
    TimeoutPolicy: ContainerTag(
        "TimeoutPolicy",
        _take_timeout_policy,
        _give_timeout_policy,
        (".run_timeout", ".idle_timeout", ".refresh_on").__getitem__,
    ),
    Overwrite: ContainerTag(
        "Overwrite", lambda value: (value.value,), _give_overwrite, lambda index: ".value"
    ),
}

READERS: Final[dict[str, Callable[[Any], Any]]] = {
    **{tag.name: tag.give for tag in (FLOAT, INT, STR, DICT, *LEAVES.values())},
    **{tag.name: tag.give for tag in CONTAINERS.values()},
}

STORED_TYPES: Final[frozenset[type]] = frozenset(
    {str, int, float, bool, type(None), list, dict, *LEAVES, *CONTAINERS}
)
