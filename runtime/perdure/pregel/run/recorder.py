"""The recorder: projects a run's facts to rows, and is the one caller of its saver while it goes on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, assert_never

import orjson

from perdure.checkpoint.base import BlobRow, CheckpointRow, CheckpointTuple, Commit, RunEnd, WriteRow
from perdure.checkpoint.delta import Record, carried_by, encode_list, marks_of
from perdure.constants import ERROR, ERROR_SOURCE, INPUT, MISSING, NO_WRITES, RESERVED_SLOTS, TASKS
from perdure.data import Send
from perdure.errors import UnserializableValueError
from perdure.ids import path_text
from perdure.pregel.events.facts import SuperstepApplied, TaskEnded
from perdure.pregel.lease.session import Session
from perdure.pregel.plan.plan import Plan
from perdure.pregel.step.namespace import Namespace
from perdure.pregel.step.outcome import (
    Failed,
    Finished,
    Left,
    Outcome,
    Stopped,
    Waiting,
)
from perdure.pregel.step.state import ThreadState
from perdure.pregel.step.task import Position, Superstep, Task, Writes


class Recorder:
    """Turns one graph run's facts into commits, by its durability."""

    __slots__ = (
        "_carried",
        "_changed",
        "_handed",
        "_held",
        "_metadata",
        "_namespace",
        "_parent_id",
        "_plan",
        "_records",
        "_session",
        "_state",
        "_unstored",
    )

    def __init__(
        self,
        plan: Plan,
        state: ThreadState,
        session: Session,
        namespace: Namespace,
        head: CheckpointTuple | None,
        metadata: Mapping[str, Any],
        renamed: Iterable[str] = (),
    ) -> None:
        """Begin to record on what is stored.

        Args:
            head: the checkpoint that the next one will follow; None for a thread that has none.
            renamed: channels of the head that the next checkpoint stores again, under their new names.
        """
        self._plan = plan
        self._state = state
        self._session = session
        self._metadata = metadata
        self._changed: set[str] = set(renamed)
        self._held: list[WriteRow] = []
        self._handed: set[Task] = set()  # tasks of this superstep whose end is in the line already
        self._namespace = namespace.text
        self._parent_id = None if head is None else head.checkpoint["id"]
        self._unstored = False
        self._carried: dict[str, set[int]] = {}
        self._records: dict[str, Record] = {}
        for key, base in {} if head is None else head.delta_bases.items():
            if key in plan.reduced:
                marks = marks_of(session.saver.serde, state.values[key], by_identity=key in plan.appended)
                self._records[key] = Record(base, marks)

    @property
    def deferred(self) -> bool:
        """Whether nothing is stored before the end."""
        return self._session.durability == "exit"

    @property
    def stores_at_once(self) -> bool:
        """Whether a superstep is stored before the next one starts."""
        return self._session.durability == "sync"

    async def before_superstep(self) -> None:
        """Wait until as few finished supersteps are unacknowledged as the durability allows."""
        if self._session.durability == "async":
            await self._session.line.settle_supersteps(1)

    def task_ended(self, fact: TaskEnded) -> None:
        """Store what a task wrote at once if others of its superstep still run; else its commit follows."""
        if not fact.others_run:
            self._session.wake.hush(self)
        elif isinstance(fact.outcome, Finished) and not self.deferred:
            self._store_early(fact.outcome)

    def task_left_behind(self, finished: Finished) -> None:
        """Store what a task wrote beside another that left the graph, of which no commit follows."""
        if not self.deferred and not self._is_stored(finished):
            self._store_early(finished)

    def _store_early(self, finished: Finished) -> None:
        self._put(writes=self._task_rows(finished.task, finished.writes))
        self._handed.add(finished.task)
        self._session.wake.ring(self)

    def _is_stored(self, outcome: Finished | Failed) -> bool:
        return outcome.restored or outcome.task in self._handed

    def merged(self, finished: Finished, changed: Iterable[str]) -> None:
        """Note writes of no superstep that were merged into the state: the next checkpoint holds them."""
        self._changed.update(changed)
        if self._session.saver.stores_deltas:
            self._note_carried((finished,))

    def keep_command(self, superstep: Superstep, writes: Writes, task_id: str, order: int) -> None:
        """Keep what a command writes beside the checkpoint that it came to."""
        place = (self._namespace, superstep.checkpoint_id, task_id, path_text((order,)))
        rows = [
            WriteRow(*place, index, name, self._encode_write(INPUT, name, value))
            for index, (name, value) in enumerate(self._stored_writes(writes))
        ]
        if self.deferred:
            self._held = rows  # in the next checkpoint, or beside this one if there is none
        else:
            self._put(writes=rows)

    async def handler_begins(self, failed: Failed) -> None:
        """Return when it is certain that a task's error handler, not its node, would be run again."""
        if not self.deferred:
            self._put(writes=self._error_rows(failed))
            self._handed.add(failed.task)
            await self._session.line.settle()

    async def superstep_applied(
        self, fact: SuperstepApplied, end: RunEnd | None = None, *, rides: bool = False
    ) -> None:
        """Record a superstep whose writes were applied.

        Args:
            end: given with the last superstep of the run that holds the claim.
            rides: the superstep ran no node, so it may be stored together with the next one.
        """
        self._changed.update(fact.changed or ())
        if self._session.saver.stores_deltas:
            self._note_carried(fact.outcomes)
        if self.deferred:
            self._handed = {outcome.task for outcome in fact.outcomes}  # in the checkpoint that is to come
            self._unstored = True
            if end is not None:
                self._put_checkpoint(fact.position, [], end)
                await self._session.line.settle()
            return
        writes = [
            row
            for outcome in fact.outcomes
            if isinstance(outcome, Finished) and not outcome.restored and outcome.task not in self._handed
            for row in self._task_rows(outcome.task, outcome.writes)
        ]
        self._put_checkpoint(fact.position, writes, end, superstep=not rides)
        self._handed = {outcome.task for outcome in fact.outcomes}
        if end is not None or (self.stores_at_once and not rides):
            await self._session.line.settle()
        elif not rides:
            self._session.wake.ring(None)

    async def run_stopped(self, outcomes: Iterable[Outcome], position: Position, end: RunEnd | None) -> None:
        """Record a superstep that did not come to its end: what finished, and what failed.

        What cannot be encoded cannot keep the rest from being stored.

        Args:
            position: the checkpoint that the tasks ran from.
        """
        if self._session.line.ending:  # stopped while its last commit was on its way, which says it all
            await self._session.line.settle()
            return
        writes = [row for outcome in outcomes for row in self._stopped_rows(outcome)]
        try:
            if self._unstored:
                self._put_checkpoint(position, writes, end)
            else:
                self._put(writes=[*self._held, *writes], end=end)
        except UnserializableValueError:
            self._put(end=end)
            raise
        finally:
            await self._session.line.settle()

    def _stopped_rows(self, outcome: Outcome) -> list[WriteRow]:
        match outcome:
            case Finished() | Failed() if self._is_stored(outcome):
                return []
            case Finished():
                try:
                    return self._task_rows(outcome.task, outcome.writes)
                except UnserializableValueError as error:
                    return self._error_rows(Failed(outcome.task, error))
            case Failed():
                return self._error_rows(outcome)
            case Waiting() | Left() | Stopped():
                return []
            case _:
                assert_never(outcome)

    def _put_checkpoint(
        self, position: Position, writes: Sequence[WriteRow], end: RunEnd | None, *, superstep: bool = True
    ) -> None:
        state = self._state
        row = CheckpointRow(
            ns=self._namespace,
            checkpoint_id=position.checkpoint_id,
            parent_id=self._parent_id,
            ts=datetime.fromtimestamp(self._session.clock.time_ns() / 1e9, UTC).isoformat(),
            versions=orjson.dumps(state.versions),
            seen=orjson.dumps(state.seen),
            metadata={**self._metadata, "source": position.source, "step": position.step},
        )
        blobs = self._blobs()
        self._put(checkpoints=(row,), blobs=blobs, writes=writes, end=end, superstep=superstep)
        self._parent_id = position.checkpoint_id
        self._unstored = False
        self._changed.clear()
        self._carried.clear()

    def _put(
        self,
        *,
        checkpoints: Sequence[CheckpointRow] = (),
        blobs: Sequence[BlobRow] = (),
        writes: Sequence[WriteRow] = (),
        end: RunEnd | None = None,
        superstep: bool = False,
    ) -> None:
        session = self._session
        if not (checkpoints or writes or end):
            return
        commit = Commit(
            thread_id=session.thread_id,
            fence=session.fence,
            last_id=checkpoints[-1].checkpoint_id if checkpoints else None,
            checkpoints=checkpoints,
            blobs=blobs,
            writes=writes,
            end=end,
        )
        session.line.put(commit, superstep=superstep)

    def _note_carried(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            for key, carried in carried_by(outcome.writes, self._plan.appended).items():
                self._carried.setdefault(key, set()).update(carried)

    def _blobs(self) -> list[BlobRow]:
        rows = []
        for name in sorted(self._changed):
            value = self._state.stored(name)
            if value is not MISSING:
                try:
                    rows.append(self._blob(name, value))
                except UnserializableValueError as error:
                    raise UnserializableValueError(
                        f"The value of {_called(name)} cannot be stored: {error}"
                    ) from error
        return rows

    def _blob(self, name: str, value: Any) -> BlobRow:
        saver = self._session.saver
        place = (self._namespace, name, self._state.versions[name])
        if value is None:
            return BlobRow(*place, b"null")
        if name == TASKS:
            value = [_without(sent, self._plan.untracked) for sent in value]
        elif type(value) is list and saver.stores_deltas and name in self._plan.reduced:
            carried = self._carried.get(name, set()) if name in self._plan.appended else None
            row, self._records[name] = encode_list(
                saver.serde, place, value, self._records.get(name), carried
            )
            return row
        self._records.pop(name, None)
        return BlobRow(*place, saver.serde.dumps(value))

    def _task_rows(self, task: Task, writes: Writes) -> list[WriteRow]:
        place = (self._namespace, task.superstep.checkpoint_id, task.id, path_text(task.path))
        stored = self._stored_writes(writes)
        if not stored:
            return [WriteRow(*place, 0, NO_WRITES, b"null")]
        return [
            WriteRow(*place, index, name, self._encode_write(task.name, name, value))
            for index, (name, value) in enumerate(stored)
        ]

    def _stored_writes(self, writes: Writes) -> Writes:
        """Return a task's writes, all its Sends as one, without what is never stored (untracked keys)."""
        untracked = self._plan.untracked
        stored: Writes = []
        sends: list[Send] = []
        for name, value in writes:
            if name == TASKS:
                sends.append(_without(value, untracked))
            elif name not in untracked:
                stored.append((name, value))
        if sends:
            stored.append((TASKS, sends))
        return stored

    def _encode_write(self, node: str, name: str, value: Any) -> bytes:
        if value is None:
            return b"null"
        try:
            return self._session.saver.serde.dumps(value)
        except UnserializableValueError as error:
            raise UnserializableValueError(
                f"Node {node!r} wrote a value to {_called(name)} that cannot be stored: {error}"
            ) from error

    def _error_rows(self, failed: Failed) -> list[WriteRow]:
        """Return the rows of a failure; if a handler took over, they keep the node from being run again."""
        task = failed.task
        place = (self._namespace, task.superstep.checkpoint_id, task.id, path_text(task.path))
        controls = [(ERROR, repr(failed.error))]
        if failed.handler is not None:
            controls.append((ERROR_SOURCE, task.name))
        dumps = self._session.saver.serde.dumps
        return [WriteRow(*place, RESERVED_SLOTS[name], name, dumps(text)) for name, text in controls]


def _called(name: str) -> str:
    return "a Send" if name == TASKS else f"state key {name!r}"


def _without(sent: Send, untracked: frozenset[str]) -> Send:
    if not isinstance(sent.arg, dict) or untracked.isdisjoint(sent.arg):
        return sent
    return replace(sent, arg={key: value for key, value in sent.arg.items() if key not in untracked})
