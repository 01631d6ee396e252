"""Sinks: a run's way to tell its readers, and those of the runs around it, what happens."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from perdure.errors import StreamOverflowError
from perdure.pregel.events.buffer import Buffer
from perdure.pregel.events.facts import Fact, TaskTold
from perdure.pregel.step.namespace import ROOT_NAMESPACE, Namespace
from perdure.pregel.step.task import Task


class Sink:
    """Where the facts of one run go: into a buffer that is read, and into the sinks of runs around it.

    Attributes:
        buffer: the buffer of the streamed run that this run is, or is below.
        place: the run's place below that one.
        above: the sink of the run around the streamed one, if somebody reads that as well.
        listeners: the kinds of facts that somebody listens for.
    """

    __slots__ = ("_projections", "above", "buffer", "listeners", "place")

    def __init__(self, buffer: Buffer, place: Namespace = ROOT_NAMESPACE, above: Sink | None = None) -> None:
        self.buffer = buffer
        self.place = place
        self.above = above
        self._projections = own = buffer.listeners_at(place)
        self.listeners: Container[type[Fact]] = own if above is None else _Either(own, above.listeners)

    def below(self, task: Task) -> Sink:
        """Return the sink of a graph that a node of this run invokes."""
        name = task.name if task.former is None else task.former.name
        above = None if self.above is None else self.above.below(task)
        return Sink(self.buffer, self.place.child(name, task.id), above)

    def wants(self, kind: type[Fact]) -> bool:
        """Return whether somebody listens for facts of this kind; no others need be made."""
        return kind in self.listeners

    def call(self, ordinal: int) -> Sink:
        """Return the sink of a node's child graph number `ordinal`, counted from 0, given that of its first.

        The place of a graph that the node streams itself stays the root: its own reader knows which it is.
        """
        place = self.place if self.place == ROOT_NAMESPACE else self.place.call(ordinal)
        return Sink(self.buffer, place, None if self.above is None else self.above.call(ordinal))

    def tell(self, fact: Fact) -> None:
        """Put into the buffer what readers get to see of a fact."""
        for mode, _, project in self._projections.get(type(fact), ()):
            for payload in project(fact):
                self.buffer.put((self.place, mode, payload))
        if self.above is not None:
            self.above.tell(fact)

    @property
    def is_full(self) -> bool:
        """Whether some reader is too far behind for the run to go on."""
        return self.buffer.is_full or (self.above is not None and self.above.is_full)

    async def room(self) -> None:
        """Wait until no reader is too far behind."""
        await self.buffer.room()
        if self.above is not None:
            await self.above.room()

    def wait_for_room(self) -> None:
        """Wait in a thread until no reader is too far behind."""
        self.buffer.wait_for_room()
        if self.above is not None:
            self.above.wait_for_room()


class _Either:
    """Kinds of facts in one set, or in the other; both may grow."""

    __slots__ = ("_one", "_other")

    def __init__(self, one: Container[type[Fact]], other: Container[type[Fact]]) -> None:
        self._one = one
        self._other = other

    def __contains__(self, kind: object) -> bool:
        return kind in self._one or kind in self._other


class Voice:
    """One body's way to put "custom" events into the stream.

    In a thread, putting waits for room. In the run's own loop it cannot: there the body may put so many
    events while no reader takes any, and then has to await `flush`.
    """

    __slots__ = ("_put", "_seen", "_sink", "_task")

    def __init__(self, sink: Sink, task: Task) -> None:
        self._sink = sink
        self._task = task
        self._put = 0
        self._seen = sink.buffer.taken

    def write(self, event: Any) -> None:
        """Put an event. Raises StreamOverflowError for one too many."""
        buffer = self._sink.buffer
        if buffer.on_loop:
            self._count()
        else:
            self._sink.wait_for_room()
        self._sink.tell(TaskTold(self._task, event))

    def _count(self) -> None:
        """Count the events that this body has put since the slowest reader last took one."""
        buffer = self._sink.buffer
        if buffer.taken != self._seen:
            self._put, self._seen = 0, buffer.taken
        self._put += 1
        if self._put > buffer.most_unread:
            raise StreamOverflowError(
                f"Node {self._task.name!r} put more than {buffer.most_unread} events into the stream without "
                "letting anybody read them. `await runtime.flush()` between them: it waits for the readers."
            )
