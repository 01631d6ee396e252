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
"""The address of an entry: its namespace, and its key in there."""


class BaseCache(ABC):
    """Keeps bytes under keys for a while.

    A cache may forget anything at any time. What it answers with is what was kept last under that
    key, unchanged, and not expired. Every call is one round trip, however many keys it is about; calls
    may overlap. What goes wrong is raised: the engine then goes on without the cache.

    Attributes:
        serde: makes bytes of what is kept; who calls the cache calls it.
        home: the event loop that the cache lives on; None: any.
    """

    home: Any = None

    def __init__(self, *, serde: SerializerProtocol | None = None) -> None:
        self.serde = serde if serde is not None else JsonSerializer()

    @abstractmethod
    async def aget(self, keys: Sequence[FullKey]) -> dict[FullKey, bytes]:
        """Return what is kept under these keys; the answer leaves out keys that have no entry."""

    @abstractmethod
    async def aset(self, pairs: Mapping[FullKey, tuple[bytes, float | None]]) -> None:
        """Keep each value for so many seconds, or for ever (None), in place of what was kept there.

        Of zero or fewer seconds nothing is seen.
        """

    @abstractmethod
    async def aclear(self, namespaces: Sequence[Namespace] | None = None) -> None:
        """Forget what is in these namespaces and in those below them; None: everything.

        Below a namespace are those that begin with all of its labels; () is above all.
        """
