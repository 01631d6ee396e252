"""What of a run is persisted when: the one caller of the saver while a run goes on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import orjson

from perdure.checkpoint.base import BlobRow, CheckpointRow, CheckpointTuple, Commit, RunEnd, WriteRow
from perdure.checkpoint.delta import Record, carried_by, encode_list, marks_of
from perdure.constants import ERROR, ERROR_SOURCE, MISSING, NO_WRITES, RESERVED_SLOTS, TASKS
from perdure.data import Send
from perdure.errors import GraphBubbleUp, UnserializableValueError
from perdure.ids import path_text
from perdure.pregel.lease.session import Session
from perdure.pregel.plan.plan import Plan
from perdure.pregel.step.state import ThreadState
from perdure.pregel.step.task import Task, Writes


class Recorder:
    """Turns one graph run's supersteps into commits, by its durability.

    Attributes:
        parent_id: the checkpoint that the next one will follow; None before the first.
    """

    __slots__ = (
        "_carried",
        "_changed",
        "_held",
        "_metadata",
        "_plan",
        "_records",
        "_session",
        "_state",
        "_unstored",
        "namespace",
        "parent_id",
    )

    def __init__(
        self,
        plan: Plan,
        state: ThreadState,
        session: Session,
        namespace: str,
        head: CheckpointTuple | None,
        metadata: Mapping[str, Any],
    ) -> None:
        self._plan = plan
        self._state = state
        self._session = session
        self._metadata = metadata
        self._changed: set[str] = set()
        self._held: list[WriteRow] = []
        self.namespace = namespace
        self.parent_id = None if head is None else head.checkpoint["id"]
        self._unstored = False
        self._carried: dict[str, set[int]] = {}
        self._records: dict[str, Record] = {}
        for key, base in {} if head is None else head.delta_bases.items():
            if key in plan.reduced:
                marks = marks_of(session.saver.serde, state.values[key], by_identity=key in plan.appended)
                self._records[key] = Record(base, marks)

    def store_again(self, channels: Iterable[str]) -> None:
        """Have the next checkpoint store these channels as if they had changed: they have other names now."""
        self._changed.update(channels)

    @property
    def deferred(self) -> bool:
        """Whether nothing is stored before the end."""
        return self._session.durability == "exit"

    async def before_superstep(self) -> None:
        """Wait until as few finished supersteps are unacknowledged as the durability allows."""
        if self._session.durability == "async":
            await self._session.line.settle_supersteps(1)

    def task_finished(self, task: Task) -> None:
        """A task has finished while others of its superstep still run."""
        if not self.deferred:
            self._put(writes=self._task_rows(task))
            task.stored = True
            self._session.wake(task.superstep)

    def merged(self, task: Task, changed: Iterable[str]) -> None:
        """Writes that no superstep made were merged into the state: the next checkpoint will hold them."""
        self._changed.update(changed)
        if self._session.saver.stores_deltas:
            self._note_carried((task,))

    def keep_command(self, task: Task, task_id: str, order: int) -> None:
        """Keep what a command writes beside the checkpoint that it came to."""
        place = (self.namespace, task.superstep.checkpoint_id, task_id, path_text((order,)))
        rows = [
            WriteRow(*place, index, name, self._encode_write(task, name, value))
            for index, (name, value) in enumerate(self._stored_writes(task))
        ]
        if self.deferred:
            self._held = rows  # in the next checkpoint, or beside this one if there is none
        else:
            self._put(writes=rows)

    async def handler_begins(self, failed: Task) -> None:
        """A task has failed; return when it is certain that its handler, not the node, would be run again."""
        if not self.deferred:
            self._put(writes=self._error_rows(failed, failed.error))
            failed.stored = True
            await self._session.line.settle()

    async def superstep_finished(
        self,
        tasks: Sequence[Task],
        changed: Iterable[str],
        checkpoint_id: str,
        *,
        source: str,
        step: int,
        end: RunEnd | None = None,
        rides: bool = False,
    ) -> None:
        """Record a superstep whose writes were applied.

        Args:
            end: given with the last superstep of the run that holds the claim.
            rides: the superstep ran no node, so it may be stored together with the next one.
        """
        self._changed.update(changed)
        if self._session.saver.stores_deltas:
            self._note_carried(tasks)
        if self.deferred:
            self._unstored = True
            for task in tasks:
                task.stored = True  # in the checkpoint that is to come
            if end is not None:
                self._put_checkpoint(checkpoint_id, source, step, [], end)
                await self._session.line.settle()
            return
        unstored = [task for task in tasks if not task.stored]
        writes = [row for task in unstored for row in self._task_rows(task)]
        self._put_checkpoint(checkpoint_id, source, step, writes, end, superstep=not rides)
        for task in unstored:
            task.stored = True
        if end is not None or (self._session.durability == "sync" and not rides):
            await self._session.line.settle()
        elif not rides:
            self._session.wake(None)

    async def run_stopped(
        self, tasks: Sequence[Task], checkpoint_id: str, source: str, step: int, end: RunEnd | None
    ) -> None:
        """Record a superstep that did not come to its end: what finished, and what failed.

        `checkpoint_id`, `source` and `step` are those of the checkpoint that the tasks ran from.
        What cannot be encoded cannot keep the rest from being stored.
        """
        if self._session.line.ending:  # stopped while its last commit was on its way, which says it all
            await self._session.line.settle()
            return
        writes = [row for task in tasks for row in self._stopped_rows(task)]
        try:
            if self._unstored:
                self._put_checkpoint(checkpoint_id, source, step, writes, end)
            else:
                self._put(writes=[*self._held, *writes], end=end)
        except UnserializableValueError:
            self._put(end=end)
            raise
        finally:
            await self._session.line.settle()

    def _stopped_rows(self, task: Task) -> list[WriteRow]:
        if task.stored or isinstance(task.error, GraphBubbleUp):
            return []
        if task.error is not None:
            return self._error_rows(task, task.error)
        if task.writes is None:
            return []
        try:
            return self._task_rows(task)
        except UnserializableValueError as error:
            return self._error_rows(task, error)

    def _put_checkpoint(
        self,
        checkpoint_id: str,
        source: str,
        step: int,
        writes: Sequence[WriteRow],
        end: RunEnd | None,
        *,
        superstep: bool = True,
    ) -> None:
        state = self._state
        row = CheckpointRow(
            ns=self.namespace,
            checkpoint_id=checkpoint_id,
            parent_id=self.parent_id,
            ts=datetime.fromtimestamp(self._session.clock.time_ns() / 1e9, UTC).isoformat(),
            versions=orjson.dumps(state.versions),
            seen=orjson.dumps(state.seen),
            metadata={**self._metadata, "source": source, "step": step},
        )
        blobs = self._blobs()
        self._put(checkpoints=(row,), blobs=blobs, writes=writes, end=end, superstep=superstep)
        self.parent_id = checkpoint_id
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

    def _note_carried(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            for key, carried in carried_by(task.writes or (), self._plan.appended).items():
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
        place = (self.namespace, name, self._state.versions[name])
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

    def _task_rows(self, task: Task) -> list[WriteRow]:
        place = (self.namespace, task.superstep.checkpoint_id, task.id, path_text(task.path))
        writes = self._stored_writes(task)
        if not writes:
            return [WriteRow(*place, 0, NO_WRITES, b"null")]
        return [
            WriteRow(*place, index, name, self._encode_write(task, name, value))
            for index, (name, value) in enumerate(writes)
        ]

    def _stored_writes(self, task: Task) -> Writes:
        """The task's writes, all its Sends as one, without what is never stored (untracked keys)."""
        untracked = self._plan.untracked
        stored: Writes = []
        sends: list[Send] = []
        for name, value in task.writes or ():
            if name == TASKS:
                sends.append(_without(value, untracked))
            elif name not in untracked:
                stored.append((name, value))
        if sends:
            stored.append((TASKS, sends))
        return stored

    def _encode_write(self, task: Task, name: str, value: Any) -> bytes:
        if value is None:
            return b"null"
        try:
            return self._session.saver.serde.dumps(value)
        except UnserializableValueError as error:
            raise UnserializableValueError(
                f"Node {task.name!r} wrote a value to {_called(name)} that cannot be stored: {error}"
            ) from error

    def _error_rows(self, task: Task, error: BaseException | None) -> list[WriteRow]:
        """What a task failed with; and, if another one runs in its place, that it is not to be run again."""
        place = (self.namespace, task.superstep.checkpoint_id, task.id, path_text(task.path))
        controls = [(ERROR, repr(error))]
        if task.handler is not None:
            controls.append((ERROR_SOURCE, task.name))
        dumps = self._session.saver.serde.dumps
        return [WriteRow(*place, RESERVED_SLOTS[name], name, dumps(text)) for name, text in controls]


def _called(name: str) -> str:
    return "a Send" if name == TASKS else f"state key {name!r}"


def _without(sent: Send, untracked: frozenset[str]) -> Send:
    if not isinstance(sent.arg, dict) or untracked.isdisjoint(sent.arg):
        return sent
    return replace(sent, arg={key: value for key, value in sent.arg.items() if key not in untracked})
