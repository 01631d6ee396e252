"""Sinks: they pass a run's facts to its readers, and to the readers of the runs around it."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from perdure.aio.home import loop_here
from perdure.errors import StreamOverflowError
from perdure.pregel.events.buffer import Buffer
from perdure.pregel.events.facts import Fact, TaskTold
from perdure.pregel.step.namespace import ROOT_NAMESPACE, Namespace
from perdure.pregel.step.task import Task


class Sink:
    """The destination of one run's facts: a buffer, and the sinks of the runs around it.

    Attributes:
        buffer: the buffer of the nearest streamed run: this run itself, or one around it.
        place: the namespace of this run below the streamed one.
        above: the sink of the run around the streamed one, if that is read as well.
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
        """Return the sink of a child graph of this run's `task`."""
        name = task.name if task.former is None else task.former.name
        above = None if self.above is None else self.above.below(task)
        return Sink(self.buffer, self.place.child(name, task.id), above)

    def wants(self, kind: type[Fact]) -> bool:
        """Return True if somebody listens for facts of this kind. No others need to be made."""
        return kind in self.listeners

    def call(self, ordinal: int) -> Sink:
        """Return the sink of a task's child graph number `ordinal`, counted from 0. This is the first one's.

        A graph that the node itself streams keeps the root as its place, because its reader reads no other.
        """
        place = self.place if self.place == ROOT_NAMESPACE else self.place.call(ordinal)
        return Sink(self.buffer, place, None if self.above is None else self.above.call(ordinal))

    def buffers(self, kind: type[Fact]) -> list[Buffer]:
        """Return the buffers that receive events of facts of this kind."""
        above = [] if self.above is None else self.above.buffers(kind)
        return [self.buffer, *above] if kind in self._projections else above

    def tell(self, fact: Fact) -> None:
        """Put the events that listeners make of a fact into their buffers."""
        for mode, _, project in self._projections.get(type(fact), ()):
            for payload in project(fact):
                self.buffer.put((self.place, mode, payload))
        if self.above is not None:
            self.above.tell(fact)

    @property
    def is_full(self) -> bool:
        """True if a reader is so far behind that the run has to wait."""
        return self.buffer.is_full or (self.above is not None and self.above.is_full)

    async def room(self) -> None:
        """Wait until no reader is so far behind."""
        await self.buffer.room()
        if self.above is not None:
            await self.above.room()


class Unread:
    """One body's count of the events that it has put into a buffer since the slowest reader took one."""

    __slots__ = ("_node", "_put", "_seen", "buffer")

    def __init__(self, node: str, buffer: Buffer) -> None:
        self.buffer = buffer
        self._node = node
        self._put = 0
        self._seen = buffer.taken

    def count(self) -> None:
        """Count one more event. Raise StreamOverflowError if there are too many."""
        buffer = self.buffer
        if buffer.taken != self._seen:
            self._put, self._seen = 0, buffer.taken
        self._put += 1
        if self._put > buffer.most_unread:
            raise StreamOverflowError(
                f"Node {self._node!r} put more than {buffer.most_unread} events into the stream without "
                "letting anybody read them. `await runtime.flush()` between them: it waits for the readers."
            )


class _Either:
    """The union of two sets of kinds of facts, which may both grow."""

    __slots__ = ("_one", "_other")

    def __init__(self, one: Container[type[Fact]], other: Container[type[Fact]]) -> None:
        self._one = one
        self._other = other

    def __contains__(self, kind: object) -> bool:
        return kind in self._one or kind in self._other


class Voice:
    """One body's "custom" events on their way into the stream.

    In a thread, putting an event waits for room. Where a loop runs it cannot wait: there a body may put
    `most_unread` events while no reader takes any, and then has to await `runtime.flush()`. Both rules hold
    for each buffer that receives the events. There are several if a streamed run streams a child graph.
    """

    __slots__ = ("_sink", "_task", "_unread")

    def __init__(self, sink: Sink, task: Task) -> None:
        self._sink = sink
        self._task = task
        self._unread = [Unread(task.name, buffer) for buffer in sink.buffers(TaskTold)]

    def write(self, event: Any) -> None:
        """Put an event. Raise StreamOverflowError if there are too many."""
        for unread in self._unread:
            if loop_here() is not None:  # of the run, or of a child graph whose saver lives on another
                unread.count()
            else:
                unread.buffer.wait_for_room()
        self._sink.tell(TaskTold(self._task, event))
