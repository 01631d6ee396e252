"""The recorder: a run's facts as rows. While a run goes on, nothing else makes commits for it."""

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
    """The facts of one run, turned into commits at the moments that the run's durability demands."""

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
        """Continue the record of a thread.

        Args:
            head: the checkpoint that the next one will follow; None if the thread has none.
            renamed: channels that the head has under an old name, which the next checkpoint stores again.
        """
        self._plan = plan
        self._state = state
        self._session = session
        self._metadata = metadata
        self._changed: set[str] = set(renamed)
        self._held: list[WriteRow] = []
        self._handed: set[Task] = set()  # tasks of this superstep whose outcome is in the line already
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
        """True if nothing is stored before the end of the run (durability "exit")."""
        return self._session.durability == "exit"

    @property
    def stores_at_once(self) -> bool:
        """True if each superstep is stored before the next one starts (durability "sync")."""
        return self._session.durability == "sync"

    async def before_superstep(self) -> None:
        """Wait, in durability "async", until at most one finished superstep is unacknowledged."""
        if self._session.durability == "async":
            await self._session.line.settle_supersteps(1)

    def task_ended(self, fact: TaskEnded) -> None:
        """Store a task's writes at once if others of its superstep still run. Else the commit follows."""
        if not fact.others_run:
            self._session.wake.hush(self)  # the superstep's commit will take along what has gathered
        elif isinstance(fact.outcome, Finished) and not self.deferred:
            self._store_early(fact.outcome)

    def task_left_behind(self, finished: Finished) -> None:
        """Store the writes of a task whose sibling left the graph, for which no other commit follows."""
        if not self.deferred and not self._is_stored(finished):
            self._store_early(finished)

    def _store_early(self, finished: Finished) -> None:
        self._put(writes=self._task_rows(finished.task, finished.writes))
        self._handed.add(finished.task)
        self._session.wake.ring(self)

    def _is_stored(self, outcome: Finished | Failed) -> bool:
        return outcome.restored or outcome.task in self._handed

    def merged(self, finished: Finished, changed: Iterable[str]) -> None:
        """Note that writes of no superstep were merged into the state. The next checkpoint will hold them."""
        self._changed.update(changed)
        if self._session.saver.stores_deltas:
            self._note_carried((finished,))

    def keep_command(self, superstep: Superstep, writes: Writes, task_id: str, order: int) -> None:
        """Store a command's writes beside the checkpoint on which the thread stands."""
        place = (self._namespace, superstep.checkpoint_id, task_id, path_text((order,)))
        rows = [
            WriteRow(*place, index, name, self._encode_write(INPUT, name, value))
            for index, (name, value) in enumerate(self._stored_writes(writes))
        ]
        if self.deferred:
            self._held = rows  # stored only if the run ends without a checkpoint, which would hold them
        else:
            self._put(writes=rows)

    async def handler_begins(self, failed: Failed) -> None:
        """Store that a task's error handler takes over, and return when that is acknowledged.

        From then on, a run that continues this one after a crash runs the handler again, not the node. In
        durability "exit" nothing is stored yet, and nothing is waited for.
        """
        if not self.deferred:
            self._put(writes=self._error_rows(failed))
            self._handed.add(failed.task)
            await self._session.line.settle()

    async def superstep_applied(
        self, fact: SuperstepApplied, end: RunEnd | None = None, *, rides: bool = False
    ) -> None:
        """Record a superstep whose writes were applied.

        Args:
            end: the end of the run, with the last superstep of the run that holds the claim.
            rides: True if the superstep ran no node, so that it may be stored together with the next one.
        """
        self._changed.update(fact.changed or ())
        if self._session.saver.stores_deltas:
            self._note_carried(fact.outcomes)
        if self.deferred:
            self._handed = {outcome.task for outcome in fact.outcomes}  # the run's one checkpoint holds them
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
        """Record a superstep that did not come to its end: the tasks that finished, and those that failed.

        A write that cannot be encoded is recorded as its task's failure. If the state cannot be encoded, only
        the end of the run is stored, which gives the thread back.

        Args:
            position: the checkpoint from which the tasks ran.
        """
        if self._session.line.ending:
            # The run was cancelled while its last commit was on its way. That commit has everything in it,
            # the end included; to wait for its answer is all that is left. The line sends it again if the
            # cancellation cut its sender off.
            await self._session.line.settle()
            return
        writes = [row for outcome in outcomes for row in self._stopped_rows(outcome)]
        try:
            if self._unstored:
                self._put_checkpoint(position, writes, end)
            else:
                self._put(writes=[*self._held, *writes], end=end)
        except UnserializableValueError:
            self._put(end=end)  # nothing of the first try is in the line: encoding comes before `put`
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
        """Return the writes of a task to store: without untracked keys, and with all Sends as one write."""
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
        """Return the rows of a failure. If a handler took over, they say so: the node does not run again."""
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
