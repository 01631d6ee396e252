"""The in-process saver: as exact as a durable one, and gone with the process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from threading import Lock
from typing import Any, Literal

import orjson

from perdure.checkpoint.addresses import Address, address_of, checkpoint_id_of, config_of, require_ids
from perdure.checkpoint.base import (
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    Claim,
    ClaimRequest,
    Commit,
    Fence,
    LeasedSaver,
    Orphan,
    RunEnd,
    SerializerProtocol,
)
from perdure.checkpoint.metadata import encode_metadata, metadata_matches
from perdure.checkpoint.rows import build_tuple, commit_of_checkpoint, commit_of_writes
from perdure.checkpoint.serde import JsonSerializer
from perdure.checkpoint.shelf import Shelf, Stored
from perdure.checkpoint.thread import Thread
from perdure.clock import SYSTEM_CLOCK, Clock


class InMemorySaver(LeasedSaver):
    """A saver that keeps threads in this process.

    It encodes values as a durable saver does, so values that come back are copies, and a value that could
    not be stored is refused here, too. It may be used from several event loops at once.
    """

    stores_deltas = True

    def __init__(self, *, serde: SerializerProtocol | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self.serde = JsonSerializer() if serde is None else serde
        self._clock = clock
        self._threads: dict[str, Thread] = {}
        self._lock = Lock()  # never held across an await

    # Checkpoints

    async def acommit(self, commit: Commit) -> None:
        metadata = [encode_metadata(row.metadata) for row in commit.checkpoints]
        with self._lock:
            thread = self._thread(commit.thread_id)
            thread.commit(commit, metadata)
            self._threads[commit.thread_id] = thread

    def _thread(self, thread_id: str) -> Thread:
        """Return the thread, or a new one that is kept only once something is stored in it."""
        return self._threads.get(thread_id) or Thread(thread_id)

    async def aget_tuple(self, config: Mapping[str, Any]) -> CheckpointTuple | None:
        with self._lock:
            return self._read(address_of(config))

    def _read(self, address: Address) -> CheckpointTuple | None:
        thread = self._threads.get(address.thread_id)
        shelf = None if thread is None else thread.shelves.get(address.ns or "")
        if shelf is None:
            return None
        stored = shelf.checkpoints.get(address.checkpoint_id or shelf.newest)
        return None if stored is None else self._view(address.thread_id, shelf, stored)

    def _view(self, thread_id: str, shelf: Shelf, stored: Stored) -> CheckpointTuple:
        row = stored.opened()
        return build_tuple(self.serde, thread_id, row, shelf.blobs, shelf.pending(row.checkpoint_id))

    async def alist(
        self,
        config: Mapping[str, Any] | None,
        *,
        filter: Mapping[str, Any] | None = None,
        before: Mapping[str, Any] | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        address = None if config is None else address_of(config)
        bound = None if before is None else checkpoint_id_of(before)
        with self._lock:
            found = list(self._matching(address, bound))
        found.sort(key=lambda item: item[2].row.checkpoint_id, reverse=True)
        left = limit
        for thread_id, shelf, stored in found:
            if left == 0:
                return
            if not filter or metadata_matches(orjson.loads(stored.metadata), filter):
                with self._lock:
                    view = self._view(thread_id, shelf, stored)
                left = None if left is None else left - 1
                yield view

    def _matching(self, address: Address | None, bound: str | None) -> Iterator[tuple[str, Shelf, Stored]]:
        for thread_id, thread in self._threads.items():
            if address is not None and thread_id != address.thread_id:
                continue
            for ns, shelf in thread.shelves.items():
                if address is not None and address.ns not in (None, ns):
                    continue
                for checkpoint_id, stored in shelf.checkpoints.items():
                    if bound is not None and checkpoint_id >= bound:
                        continue
                    if address is None or address.checkpoint_id in (None, checkpoint_id):
                        yield thread_id, shelf, stored

    async def aput(
        self,
        config: Mapping[str, Any],
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: Mapping[str, str],
    ) -> dict[str, Any]:
        commit = commit_of_checkpoint(self.serde, config, checkpoint, metadata, new_versions)
        await self.acommit(commit)
        row = commit.checkpoints[0]
        return config_of(commit.thread_id, row.ns, row.checkpoint_id)

    async def aput_writes(
        self,
        config: Mapping[str, Any],
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        await self.acommit(commit_of_writes(self.serde, config, writes, task_id, task_path))

    # Whole threads

    async def adelete_thread(self, thread_id: str) -> None:
        with self._lock:
            self._threads.pop(thread_id, None)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        wanted = require_ids(run_ids, "run_ids")
        with self._lock:
            for thread in self._threads.values():
                for ns, shelf in thread.shelves.items():
                    if doomed := shelf.named_by(wanted):
                        thread.shelves[ns] = shelf.without(doomed)

    async def acopy_thread(self, source: str, target: str) -> None:
        with self._lock:
            origin = self._threads.get(source)
            if origin is None or source == target:
                return
            thread = self._threads[target] = self._thread(target)
            for ns, shelf in origin.shelves.items():
                thread.shelves[ns].copy_from(shelf)
            thread.draw(origin.last_id)

    async def aprune(
        self, thread_ids: Sequence[str], *, strategy: Literal["keep_latest", "delete"] = "keep_latest"
    ) -> None:
        wanted = require_ids(thread_ids, "thread_ids")
        if strategy not in ("keep_latest", "delete"):
            raise ValueError(f"strategy is 'keep_latest' or 'delete', not {strategy!r}.")
        with self._lock:
            for thread_id in wanted & self._threads.keys():
                if strategy == "delete":
                    del self._threads[thread_id]
                    continue
                shelves = self._threads[thread_id].shelves
                for ns, shelf in shelves.items():
                    shelves[ns] = shelf.pruned()

    # Claims

    async def aclaim(self, request: ClaimRequest) -> Claim:
        config = encode_metadata(request.config, "The config of a run")
        since = datetime.fromtimestamp(self._clock.time_ns() / 1e9, UTC).isoformat()
        with self._lock:
            thread = self._thread(request.thread_id)
            head = self._read(Address(request.thread_id, request.ns, request.checkpoint_id))
            now = self._clock.monotonic()
            holder = thread.claim(request, config, now, now + self.lease_seconds, since)
            self._threads[request.thread_id] = thread
            return Claim(fence=holder.fence, head=head, last_id=thread.last_id, attempt=holder.attempt)

    async def arenew(self, fence: Fence) -> None:
        with self._lock:
            self._thread(fence.thread_id).renew(fence, self._clock.monotonic() + self.lease_seconds)

    async def arelease(self, fence: Fence, end: RunEnd) -> None:
        with self._lock:
            self._thread(fence.thread_id).end(fence, end)

    def forget(self, fence: Fence) -> None:
        """Do nothing: a claim is renewed by its own run alone."""

    async def aorphans(
        self, *, graph: str | None = None, thread_id: str | None = None, limit: int = 100
    ) -> list[Orphan]:
        now = self._clock.monotonic()
        with self._lock:
            holders = [thread.holder for thread in self._threads.values() if thread.holder is not None]
            lost = [
                holder
                for holder in holders
                if holder.expires <= now
                and graph in (None, holder.request.graph)
                and thread_id in (None, holder.request.thread_id)
            ]
            lost.sort(key=lambda holder: holder.expires)
            return [holder.orphan() for holder in lost[:limit]]


MemorySaver = InMemorySaver
