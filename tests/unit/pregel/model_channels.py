"""A model of graphs made of nodes and channels, written from the description alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

KINDS = ("last", "any", "ephemeral", "topic", "pile", "sum", "after")


class ClashError(Exception):
    """A channel that takes one value was written twice."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """Channels c0, c1, … of these kinds, of which c0 is the input, and nodes n0, n1, …

    Attributes:
        subscribes, reads, writes: the numbers of channels, by node. A node that reads None takes the bare
            value of the one channel to which it subscribes.
    """

    kinds: tuple[str, ...]
    subscribes: tuple[tuple[int, ...], ...]
    reads: tuple[tuple[int, ...] | None, ...]
    writes: tuple[tuple[int, ...], ...]


@st.composite
def programs(draw: st.DrawFn) -> Program:
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=2, max_size=6).map(tuple))
    size = draw(st.integers(1, 11))
    channel = st.integers(0, len(kinds) - 1)
    some = st.lists(channel, min_size=1, max_size=3, unique=True).map(tuple)
    few = st.lists(channel, max_size=2, unique=True).map(tuple)
    subscribes = [draw(some) for _ in range(size)]
    subscribes[0] = (0,)
    reads = [None if len(own) == 1 and draw(st.booleans()) else draw(few) for own in subscribes]
    return Program(
        kinds=kinds,
        subscribes=tuple(subscribes),
        reads=tuple(reads),
        writes=tuple(draw(few) for _ in range(size)),
    )


def result_of(node: int, given: Any) -> int | None:
    """Compute a node's result from its input. It is sometimes None, so that many programs end."""
    values = given.values() if isinstance(given, dict) else [given]
    total = node + sum(sum(value) if isinstance(value, list) else value for value in values)
    return None if total % 3 == 0 else total % 10


class Model:
    """The model of a program's run.

    Attributes:
        values: the value of each channel that can be read.
        held: the values that become readable at the end.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.values: dict[int, Any] = {c: 0 for c, kind in enumerate(program.kinds) if kind == "sum"}
        self.held: dict[int, int] = {}
        self.due: list[int] = []
        self.triggers: set[int] = set()

    def write(self, writes: dict[int, list[int]]) -> None:
        """Merge a superstep's writes, and find what runs next."""
        for channel in self.triggers & self.held.keys() & self.values.keys():
            del self.held[channel], self.values[channel]
        for channel, kind in enumerate(self.program.kinds):
            self._write(channel, kind, writes.get(channel, []))
        self._find(set(writes))
        if not self.due:
            released = self.held.keys() - self.values.keys()
            self.values.update({channel: self.held[channel] for channel in released})
            self._find(set(writes) | released)

    def _write(self, channel: int, kind: str, new: list[int]) -> None:
        if kind == "last" and len(new) > 1:
            raise ClashError
        if kind in ("any", "ephemeral", "topic") or (kind == "after" and new):
            self.values.pop(channel, None)
        if not new:
            return
        if kind == "after":
            self.held[channel] = new[-1]
        elif kind in ("topic", "pile"):
            self.values[channel] = [*self.values.get(channel, []), *new]
        else:
            self.values[channel] = self.values[channel] + sum(new) if kind == "sum" else new[-1]

    def _find(self, updated: set[int]) -> None:
        fresh = updated & self.values.keys()
        subscribed = list(enumerate(self.program.subscribes))
        self.due = sorted((node for node, own in subscribed if fresh & set(own)), key=lambda n: f"n{n}")
        self.triggers = {channel for node in self.due for channel in self.program.subscribes[node]} & fresh

    def run(self, given: int, limit: int) -> list[int]:
        """Run for at most so many supersteps. Return the nodes that ran, in the order of their writes."""
        ran: list[int] = []
        self.write({0: [given]})
        while self.due and limit:
            limit -= 1
            ran += self.due
            self._superstep()
        return ran

    def _superstep(self) -> None:
        writes: dict[int, list[int]] = {}
        for node in self.due:
            own = self.program.reads[node]
            [first, *_] = self.program.subscribes[node]
            seen = {f"c{c}": self.values[c] for c in own or () if c in self.values}
            result = result_of(node, self.values[first] if own is None else seen)
            for channel in self.program.writes[node] if result is not None else ():
                writes.setdefault(channel, []).append(result)  # type: ignore[arg-type]  # not None here
        self.write(writes)
