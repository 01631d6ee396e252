"""The bounded buffer between a run and the readers of its events."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

import anyio.to_thread

from perdure.aio.bell import Bell
from perdure.data import StreamMode
from perdure.errors import GraphValidationError
from perdure.pregel.events.facts import Fact
from perdure.pregel.events.modes import PROJECTIONS, Projection
from perdure.pregel.plan.names import names_of
from perdure.pregel.step.namespace import ROOT_NAMESPACE, Namespace

BUFFER_SIZE: Final = 64
"""Events that may wait for the slowest reader before supersteps and ended bodies wait as well."""

MOST_UNREAD: Final = 10_000
"""Events that one body may put into the stream while the slowest reader takes none."""


Event = tuple[Namespace, StreamMode, Any]
"""An event that waits for its readers: the namespace of its run, its mode, its payload."""


class Buffer:
    """The events of a run in their order, kept until every reader has taken them.

    `put` never waits. Callers that put many events wait for room: the run between supersteps and after each
    body, a thread before each event.

    A buffer belongs to the loop of its run. `put` and `wait_for_room` may be called from any thread, `room`
    on any loop, everything else on the loop only. No lock is needed: threads only append on the right, the
    loop only removes on the left, and both are atomic. `taken` and `closed` are assigned on the loop only; a
    thread that reads an old value of them looks again at the next ring.

    Attributes:
        taken: the number of events that the slowest reader has taken.
        closed: True once there will be no more events, or nobody to read them.
        most_unread: the number of events that a body may put while the slowest reader takes none.
    """

    __slots__ = (
        "_below",
        "_events",
        "_filled",
        "_readers",
        "_room",
        "_root",
        "closed",
        "most_unread",
        "taken",
    )

    def __init__(self, most_unread: int = MOST_UNREAD) -> None:
        self.taken = 0
        self.closed = False
        self.most_unread = most_unread
        self._events: deque[Event] = deque()
        self._readers: list[EventReader] = []
        self._root: dict[type[Fact], tuple[Projection, ...]] = {}
        self._below: dict[type[Fact], tuple[Projection, ...]] = {}
        self._filled = Bell()
        self._room = Bell()

    def reader(self, modes: StreamMode | Sequence[StreamMode], *, subgraphs: bool = False) -> EventReader:
        """Return a new reader of the events that are put from now on.

        Args:
            modes: one mode, for bare payloads, or several, for pairs of mode and payload.
            subgraphs: True for the events of child graphs as well. Each event then begins with its namespace.
        """
        reader = EventReader(self, modes, subgraphs=subgraphs, cursor=self.taken + len(self._events))
        self._readers.append(reader)
        for projection in (PROJECTIONS[mode] for mode in reader.modes):
            _listen(self._root, projection)
            if subgraphs:
                _listen(self._below, projection)
        return reader

    @property
    def on_loop(self) -> bool:
        """True in the thread of the run's loop, where nothing may block."""
        return self._filled.on_loop

    def listeners_at(self, place: Namespace) -> Mapping[type[Fact], Sequence[Projection]]:
        """Return the projections for facts of a run at `place`, by kind. Later readers add to them."""
        return self._root if place == ROOT_NAMESPACE else self._below

    @property
    def is_full(self) -> bool:
        """True if BUFFER_SIZE events wait for the slowest reader. A closed buffer is never full."""
        return len(self._events) >= BUFFER_SIZE and not self.closed

    def put(self, event: Event) -> None:
        """Append an event, from any thread, unless the buffer is closed."""
        if self.closed:
            return
        self._events.append(event)  # first append, then ring: a reader that wakes finds the event
        self._filled.ring()

    async def room(self) -> None:
        """Wait until fewer than BUFFER_SIZE events wait for the slowest reader."""
        if self.on_loop:
            while self.is_full:
                await self._room.wait()
        elif self.is_full:
            # A graph that a sync node invokes may run on an event loop of its own, but the bell can only be
            # awaited on the loop of the run. So a thread waits for it. When a cancellation abandons the
            # thread, it changes nothing, and ends once there is room.
            await anyio.to_thread.run_sync(self.wait_for_room, abandon_on_cancel=True)

    def wait_for_room(self) -> None:
        """Block a thread until there is room, or the run's loop no longer runs."""
        self._room.wait_in_thread(lambda: not self.is_full)

    def close(self) -> None:
        """Close the buffer: there will be no more events, or nobody to read them.

        This ends all waits, for events and for room, so that neither side can wait for one that is gone.
        """
        self.closed = True  # before the rings: whoever they wake finds it
        self._filled.ring()
        self._room.ring()

    async def filled(self, cursor: int) -> None:
        """Wait until there is an event from `cursor` on, or the buffer is closed."""
        while self.taken + len(self._events) <= cursor and not self.closed:
            await self._filled.wait()

    def after(self, cursor: int) -> list[Event]:
        """Return the events from `cursor` on.

        The copy is a single call into C, during which the interpreter lets no thread append.
        """
        return list(self._events)[cursor - self.taken :]

    def trim(self) -> None:
        """Forget the events that all readers have taken, and wake those who wait for room."""
        least = min(reader.cursor for reader in self._readers)
        for _ in range(least - self.taken):
            self._events.popleft()
        self.taken = least
        self._room.ring()


def _listen(wanted: dict[type[Fact], tuple[Projection, ...]], projection: Projection) -> None:
    for kind in projection.listens:
        if projection not in wanted.get(kind, ()):
            wanted[kind] = (*wanted.get(kind, ()), projection)


def checked_modes(modes: StreamMode | Sequence[StreamMode]) -> tuple[str, ...]:
    """Return one mode or several as a tuple. Raise GraphValidationError for an unknown mode."""
    chosen = names_of(modes)
    for mode in chosen:
        if mode not in PROJECTIONS:
            raise GraphValidationError(f"Unknown stream_mode {mode!r}. Known: {', '.join(PROJECTIONS)}.")
    return chosen


class EventReader:
    """One reader of a run's events, with a cursor of its own.

    Attributes:
        modes: the modes whose events it gets.
        cursor: the number of the next event to read, counted from the first event of the buffer.
    """

    __slots__ = ("_buffer", "_subgraphs", "_tagged", "cursor", "modes")

    def __init__(
        self,
        buffer: Buffer,
        modes: StreamMode | Sequence[StreamMode],
        *,
        subgraphs: bool,
        cursor: int,
    ) -> None:
        self.modes = checked_modes(modes)
        self.cursor = cursor
        self._buffer = buffer
        self._tagged = not isinstance(modes, str)
        self._subgraphs = subgraphs

    async def batch(self) -> deque[Any]:
        """Return all events since the last batch. Wait for one if there is none; return none at the end."""
        buffer, batch = self._buffer, deque[Any]()
        while not batch:
            await buffer.filled(self.cursor)
            events = buffer.after(self.cursor)
            if not events:
                break
            batch.extend(self._shown(events))
            self.cursor += len(events)
            buffer.trim()
        return batch

    def _shown(self, events: list[Event]) -> list[Any]:
        """Return the events of the reader's modes, in the form that it asked for."""
        modes, tagged = self.modes, self._tagged
        if self._subgraphs:
            seen = [event for event in events if event[1] in modes]
            if tagged:
                return [(place.path, mode, payload) for place, mode, payload in seen]
            return [(place.path, payload) for place, _, payload in seen]
        if tagged:
            return [(mode, payload) for place, mode, payload in events if mode in modes and not place.text]
        return [payload for place, mode, payload in events if mode in modes and not place.text]
