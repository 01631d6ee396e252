"""The saver under test, and the checks that are run on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from perdure.checkpoint.base import BaseCheckpointSaver, LeasedSaver


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A saver under test.

    Attributes:
        expire: makes the lease of the run that holds a thread run out, as if its process had been gone for
            long. Other leases may run out with it. The capability "leases" needs it.
    """

    saver: BaseCheckpointSaver
    expire: Callable[[str], Awaitable[None]] | None = None

    @property
    def leased(self) -> LeasedSaver:
        """The saver as one with leases. Raises TypeError if it has none."""
        if not isinstance(self.saver, LeasedSaver):
            raise TypeError(f"{type(self.saver).__name__} has no leases. Leave out the capability 'leases'.")
        return self.saver

    async def expire_lease(self, thread_id: str) -> None:
        """Let the lease of the run that holds a thread run out."""
        if self.expire is None:
            raise TypeError("Leases cannot be checked without a way to end them. Pass Subject(expire=...).")
        await self.expire(thread_id)


CheckFunction = Callable[[Subject], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Check:
    """A check of something that every saver does. Called and awaited, it raises AssertionError if not.

    Checks use threads and runs of their own, so they may share a saver, one after the other.
    """

    capability: str
    name: str
    function: CheckFunction

    async def __call__(self, subject: Subject) -> None:
        await self.function(subject)

    def __str__(self) -> str:
        return f"{self.capability}: {self.name}"


class Capability:
    """The checks of one capability, in the order in which they are written."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.checks: list[Check] = []

    def check(self, function: CheckFunction) -> CheckFunction:
        """Add a function as a check; a decorator."""
        self.checks.append(Check(self.name, function.__name__, function))
        return function
