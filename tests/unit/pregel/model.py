"""A model of supersteps, written from the description alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, NamedTuple

from perdure.ids import task_id
from tests.unit.pregel.shapes import ENTRY, FUEL, Join, Packet, Shape, entry, name_of, packets, update_of


class Body(NamedTuple):
    """A body that is due: its node, the depth of its packet (None: it runs on the state), its task id."""

    number: int
    depth: int | None
    id: str


class Outcome(NamedTuple):
    """The writes and destinations of a body."""

    number: int
    update: Mapping[str, Any]
    leads: frozenset[int]
    mail: Sequence[Packet]


@dataclass(frozen=True, kw_only=True)
class Point:
    """A thread at one of its checkpoints.

    Attributes:
        raised, waiting: the nodes to which an edge leads now; the deferred nodes among them, which wait.
        arrived, opened: the nodes that have arrived at each join; the joins of deferred nodes that were
            released.
        mail: the packets that were sent.
        given: the input that START is about to write.
    """

    id: str = ""
    step: int = -2
    keys: Mapping[str, Any] = field(default_factory=lambda: {"log": [], "facts": {}, "total": 0})
    raised: frozenset[int] = frozenset()
    waiting: frozenset[int] = frozenset()
    arrived: Mapping[Join, frozenset[int]] = field(default_factory=dict)
    opened: frozenset[Join] = frozenset()
    mail: tuple[Packet, ...] = ()
    given: Mapping[str, Any] | None = None


def complete(shape: Shape, point: Point, *, passed: bool = False) -> list[Join]:
    """Return the joins at which all nodes have arrived; with `passed`, those that start their node now."""
    seen = [join for join in shape.joins if point.arrived.get(join, set()) == set(join[0])]
    return [join for join in seen if not passed or join[1] not in shape.deferred or join in point.opened]


def due(shape: Shape, point: Point) -> list[Body]:
    """Return the bodies that run next, in merge order."""
    triggers = {number: [f"branch:to:{name_of(number)}"] for number in point.raised}
    if point.given is not None:
        triggers[ENTRY] = ["__start__"]
    for starts, end in complete(shape, point, passed=True):
        triggers.setdefault(end, []).append(f"join:{'+'.join(map(name_of, starts))}:{name_of(end)}")

    def body(number: int, depth: int | None, path: str, by: list[str]) -> Body:
        place = (point.id, "", point.step + 1, name_of(number))
        return Body(number, depth, task_id(*place, f"~__pregel_{path}", sorted(by)))

    pulled = [body(n, None, f"pull, {name_of(n)}", triggers[n]) for n in sorted(triggers, key=name_of)]
    sent = enumerate(point.mail)
    return pulled + [body(n, depth, f"push, {i:010d}", ["__pregel_push"]) for i, (n, depth) in sent]


def outcome(shape: Shape, point: Point, body: Body) -> Outcome:
    """Return the outcome of a body that runs at this point."""
    number, depth, log = body.number, body.depth, len(point.keys["log"])
    if number == ENTRY:
        return Outcome(ENTRY, point.given or {}, shape.entries, ())
    fuel = point.keys.get("fuel", FUEL)
    leads = frozenset(shape.branches[number] if log + 1 < fuel else ())
    leads |= {end for start, end in shape.edges if start == number}
    update = update_of(number, entry(number, log, depth), depth)
    return Outcome(number, update, leads, packets(shape, number, log < fuel, depth))


def merged(keys: Mapping[str, Any], updates: Sequence[Mapping[str, Any]], *, real: bool) -> dict[str, Any]:
    """Return the keys after these updates. A real superstep clears the news first."""
    new = dict(keys)
    if real or any("news" in update for update in updates):
        new.pop("news", None)
    for key, value in [pair for update in updates for pair in update.items()]:
        if key in ("news", "heard"):
            new[key] = [*new.get(key, ()), value]
        elif key == "facts":
            new[key] = {**new[key], **value}
        else:
            new[key] = new[key] + value if key in ("log", "total") else value
    return new


def after(shape: Shape, point: Point, outcomes: Sequence[Outcome], drawn: str) -> Point:
    """Return the point to which a superstep leads."""
    over, came = complete(shape, point, passed=True), {result.number for result in outcomes}
    seen = {join: seen for join, seen in point.arrived.items() if join not in over}
    keys = merged(point.keys, [result.update for result in outcomes], real=True)
    arrived = {join: seen.get(join, frozenset()) | came & set(join[0]) for join in shape.joins}
    following = Point(id=drawn, step=point.step + 1, keys=keys, waiting=point.waiting, arrived=arrived)
    leads = frozenset(number for result in outcomes for number in result.leads)
    return _led(shape, following, leads, [packet for result in outcomes for packet in result.mail])


def _led(shape: Shape, point: Point, leads: frozenset[int], mail: Sequence[Packet]) -> Point:
    """Return the point with more to do. If nothing is due, the deferred nodes are released."""
    raised, waiting = point.raised | leads - shape.deferred, point.waiting | leads & shape.deferred
    point = replace(point, raised=raised, waiting=waiting, mail=(*point.mail, *mail))
    if due(shape, point):
        return point
    opened = frozenset(join for join in complete(shape, point) if join[1] in shape.deferred)
    return replace(point, raised=waiting, waiting=frozenset(), opened=opened)


def started(shape: Shape, point: Point, given: Mapping[str, Any], drawn: str) -> Point:
    """Return the point after a new input: nodes that were due are dropped, incomplete joins are kept."""
    half = {join: seen for join, seen in point.arrived.items() if join not in complete(shape, point)}
    keys = merged(point.keys, (), real=True)
    return Point(id=drawn, step=point.step + 1, keys=keys, arrived=half, given=given)


def commanded(shape: Shape, point: Point, told: Outcome) -> Point:
    """Return the point after a command: nodes that were due still are, each once."""
    keys = merged(point.keys, [told.update], real=False)
    pulled = {body.number for body in due(shape, point) if body.depth is None}
    return _led(shape, replace(point, keys=keys), told.leads - pulled, told.mail)


def trail(shape: Shape, point: Point, finished: Mapping[str, Outcome], ids: Iterator[str]) -> list[Point]:
    """Return all points to the end of a run, this one first. Bodies in `finished` do not run again."""
    points = [point]
    while bodies := due(shape, point):
        results = [finished.get(body.id) or outcome(shape, point, body) for body in bodies]
        point = after(shape, point, results, next(ids))
        points.append(point)
    return points


def run_model(shape: Shape) -> tuple[dict[str, Any], list[list[Body]]]:
    """Return the final state of a first run, and the bodies of each superstep."""
    points = trail(shape, started(shape, Point(), {}, ""), {}, map(str, count()))
    return dict(points[-1].keys), [due(shape, point) for point in points[1:-1]]
