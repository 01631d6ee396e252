"""The contract of caches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from perdure.checkpoint.base import SerializerProtocol
from perdure.checkpoint.serde import JsonSerializer

Namespace: TypeAlias = tuple[str, ...]
"""Labels, from the general to the special."""

FullKey: TypeAlias = tuple[Namespace, str]
"""The address of an entry: its namespace, and its key in that namespace."""


class BaseCache(ABC):
    """A store that keeps bytes under keys for a while.

    A cache may forget anything at any time. A value that it returns is the last that was kept under the key,
    unchanged and not expired. Every call is one round trip, however many keys it has; calls may overlap.
    Errors are raised, and the engine then goes on without the cache.

    Attributes:
        serde: the serializer of the values; the caller of the cache uses it.
        home: the event loop on which all calls are made; None if any will do.
    """

    home: Any = None

    def __init__(self, *, serde: SerializerProtocol | None = None) -> None:
        self.serde = serde if serde is not None else JsonSerializer()

    @abstractmethod
    async def aget(self, keys: Sequence[FullKey]) -> dict[FullKey, bytes]:
        """Return the values under these keys, without the keys that have no entry."""

    @abstractmethod
    async def aset(self, pairs: Mapping[FullKey, tuple[bytes, float | None]]) -> None:
        """Keep each value for so many seconds, or for ever (None), in place of the one before.

        A value that is kept for zero or fewer seconds is never returned.
        """

    @abstractmethod
    async def aclear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        """Forget the entries in these namespaces and in those below them, or, for None, all entries.

        The namespaces below one begin with all of its labels; all are below ().
        """
