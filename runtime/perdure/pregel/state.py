"""A thread's state while it is worked on: channels, their versions, and who has seen which."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from perdure.channels.base import BaseChannel, is_container, shallow_copy
from perdure.checkpoint.base import Checkpoint
from perdure.constants import MISSING
from perdure.ids import version_counter
from perdure.pregel.plan import Plan


class ThreadState:
    """Everything that `prepare` reads and `apply` changes.

    Attributes:
        channels: those of the plan itself until they are first written to, then this thread's own.
        values: the state keys that have a value; kept in step with the channels, so that reading
            the state costs one dict copy.
        containers: those of `values` that are mutable containers, and so are copied when read.
        transient: channels that hold a value which the next superstep clears.
        counter: the greatest counter of any version.
    """

    __slots__ = ("channels", "containers", "counter", "plan", "seen", "transient", "values", "versions")

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.channels: dict[str, BaseChannel[Any, Any]] = dict(plan.channels)
        self.values: dict[str, Any] = {}
        self.containers: set[str] = set()
        self.transient: set[str] = set()
        self.versions: dict[str, str] = {}
        self.seen: dict[str, dict[str, str]] = {}
        self.counter = 0
        for name in plan.initial:
            self.refresh(name)

    @classmethod
    def load(cls, plan: Plan, checkpoint: Checkpoint) -> ThreadState:
        """The state that a checkpoint holds. Channels that the graph no longer has are left behind."""
        state = cls(plan)
        stored = checkpoint["channel_values"]
        for name, channel in plan.channels.items():
            if name in stored:
                state.channels[name] = channel.from_checkpoint(stored[name])
                state.refresh(name)
        state.versions = dict(checkpoint["channel_versions"])
        state.seen = {node: dict(seen) for node, seen in checkpoint["versions_seen"].items()}
        state.counter = max(map(version_counter, state.versions.values()), default=0)
        return state

    def own(self, name: str) -> BaseChannel[Any, Any]:
        """A channel to be changed: the plan's is copied before this thread first writes to it."""
        channel = self.channels[name]
        if channel is self.plan.channels[name]:
            channel = self.channels[name] = channel.copy()
        return channel

    def refresh(self, name: str) -> bool:
        """Bring `values` and `transient` in step with a channel; returns whether it has a value."""
        channel = self.channels[name]
        if not channel.is_available():
            self.transient.discard(name)
            if self.values.pop(name, MISSING) is not MISSING:
                self.containers.discard(name)
            return False
        if channel.transient:
            self.transient.add(name)
        if name in self.plan.state_keys:
            self.values[name] = value = channel.get()
            if is_container(value):
                self.containers.add(name)
            else:
                self.containers.discard(name)
        return True

    def read(self) -> dict[str, Any]:
        """The whole state, the caller's to change: containers are shallow copies."""
        view = self.values.copy()
        for key in self.containers:
            view[key] = shallow_copy(view[key])
        return view

    def select(self, keys: Iterable[str]) -> dict[str, Any]:
        """Like `read`, of some keys."""
        values = self.values
        return {key: shallow_copy(values[key]) for key in keys if key in values}

    def preview(self, writes: Iterable[tuple[str, Any]]) -> dict[str, BaseChannel[Any, Any]]:
        """Copies of the state keys that `writes` touch, with the writes applied."""
        grouped: dict[str, list[Any]] = {}
        for key, value in writes:
            if key in self.plan.state_keys:
                grouped.setdefault(key, []).append(value)
        changed = {key: self.channels[key].copy() for key in grouped}
        for key, channel in changed.items():
            channel.update(grouped[key])
        return changed

    def read_after(self, preview: Mapping[str, BaseChannel[Any, Any]]) -> dict[str, Any]:
        """Like `read`, as it would be after a preview's writes."""
        view = self.read()
        view.update({k: shallow_copy(c.get()) for k, c in preview.items() if c.is_available()})
        return view
