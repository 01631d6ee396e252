"""The cache of one process."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Final

from perdure.cache.base import BaseCache, FullKey, Namespace
from perdure.checkpoint.base import SerializerProtocol
from perdure.clock import SYSTEM_CLOCK, Clock

DEFAULT_MAX_ENTRIES: Final = 10_000


class InMemoryCache(BaseCache):
    """A cache in this process; when it is full, the entry that was used least recently is removed."""

    def __init__(
        self,
        *,
        max_entries: int = DEFAULT_MAX_ENTRIES,
        serde: SerializerProtocol | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Make an empty cache.

        Args:
            max_entries: how many results to keep, of all graphs and nodes together.
        """
        if max_entries < 1:
            raise ValueError(f"max_entries must be at least 1, not {max_entries}.")
        super().__init__(serde=serde)
        self._max_entries = max_entries
        self._clock = clock
        self._entries: OrderedDict[FullKey, tuple[bytes, float | None]] = OrderedDict()
        self._lock = Lock()  # never held across an await

    async def aget(self, keys: Sequence[FullKey]) -> dict[FullKey, bytes]:
        now = self._clock.monotonic()
        found: dict[FullKey, bytes] = {}
        with self._lock:
            for key in keys:
                payload, expires = self._entries.get(key, (None, None))
                if payload is None:
                    continue
                if expires is not None and expires <= now:
                    del self._entries[key]
                else:
                    self._entries.move_to_end(key)
                    found[key] = payload
        return found

    async def aset(self, pairs: Mapping[FullKey, tuple[bytes, float | None]]) -> None:
        now = self._clock.monotonic()
        with self._lock:
            for key, (payload, ttl) in pairs.items():
                self._entries[key] = (payload, None if ttl is None else now + ttl)
                self._entries.move_to_end(key)
            while len(self._entries) > self._max_entries:
                self._entries.popitem(last=False)

    async def aclear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        prefixes = [()] if namespaces is None else namespaces
        with self._lock:
            doomed = [key for key in self._entries if any(_is_below(key[0], prefix) for prefix in prefixes)]
            for key in doomed:
                del self._entries[key]


def _is_below(namespace: Namespace, prefix: Namespace) -> bool:
    return namespace[: len(prefix)] == tuple(prefix)
