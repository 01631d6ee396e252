"""The state of a thread during a run: values, triggers, versions, and the versions that nodes have seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

from perdure.channels.base import BaseChannel, is_container, shallow_copy
from perdure.channels.last_value_after_finish import released
from perdure.checkpoint.base import Checkpoint
from perdure.constants import MISSING
from perdure.errors import InvalidPayloadError
from perdure.ids import make_version, version_counter
from perdure.pregel.plan.plan import Plan

_SCALARS = frozenset({str, int, float, bool, type(None)})


class Preview(NamedTuple):
    """The state keys that a task wrote to, as they are after its own writes."""

    values: dict[str, Any]
    channels: dict[str, BaseChannel[Any, Any]]


class ThreadState:
    """The state that `prepare` reads and `apply` changes.

    Most channels have only a value (`plan.plain`), or are raised or not (`plan.triggers`). They have no
    channel object of their own: `values` and `raised` hold them, and the plan's channel object only refuses
    writes that it does not take.

    Attributes:
        values: the state keys that have a value. Reading the state costs one copy of this dict.
        raised: the triggers that are set. The next superstep lowers them.
        channels: the plan's channels until they are first written to, then this thread's own.
        containers: the keys of `values` with a mutable container, which is copied when it is read.
        transient: the channels with a value that the next superstep clears.
        versions: the version of each channel that has a value to store.
        seen: by node, the versions of its triggers with which it has run.
        counter: the greatest counter of all versions.
    """

    __slots__ = (
        "channels",
        "containers",
        "counter",
        "plan",
        "raised",
        "seen",
        "transient",
        "values",
        "versions",
    )

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.channels: dict[str, BaseChannel[Any, Any]] = dict(plan.channels)
        self.values: dict[str, Any] = {}
        self.raised: set[str] = set()
        self.containers: set[str] = set()
        self.transient: set[str] = set()
        self.versions: dict[str, str] = {}
        self.seen: dict[str, dict[str, str]] = {}
        self.counter = 0
        for name in plan.defaulted:
            self.channels[name] = plan.channels[name].from_checkpoint(MISSING)
        for name in plan.initial:
            self._refresh(name)

    @classmethod
    def load(cls, plan: Plan, checkpoint: Checkpoint) -> ThreadState:
        """Return the state that a checkpoint holds, without channels that the graph no longer has.

        Raises:
            InvalidPayloadError: a value is missing. Without this error, a thread whose Send or trigger was
                lost would seem to have nothing left to do.
        """
        state = cls(plan)
        values = checkpoint["channel_values"]
        for name, version in checkpoint["channel_versions"].items():
            if name not in values:
                raise InvalidPayloadError(
                    f"Checkpoint {checkpoint['id']} lists channel {name!r} with version {version}, but its "
                    "value is not stored: something other than the saver has deleted rows of this thread. "
                    "Restore them from a backup, or go on from an earlier checkpoint."
                )
            if name in plan.channels:
                state.restore(name, values[name] if name in plan.deferred else released(values[name]))
        state.versions = dict(checkpoint["channel_versions"])
        state.seen = {node: dict(seen) for node, seen in checkpoint["versions_seen"].items()}
        known = (state.versions, *state.seen.values())
        state.counter = max((version_counter(v) for versions in known for v in versions.values()), default=0)
        return state

    # One channel

    def available(self, name: str) -> bool:
        """Return True if the channel has a value or is raised."""
        if name in self.plan.triggers:
            return name in self.raised
        if name in self.plan.plain:
            return name in self.values
        return self.channels[name].is_available()

    def stored(self, name: str) -> Any:
        """Return the value to store for a channel; MISSING if there is none."""
        if name in self.plan.triggers:
            return None if name in self.raised else MISSING
        if name in self.plan.plain:
            return self.values.get(name, MISSING)
        return self.channels[name].checkpoint()

    def restore(self, name: str, stored: Any) -> None:
        """Set a channel to what it was when `stored` returned this value."""
        if name in self.plan.triggers:
            self.raised.discard(name) if stored is MISSING else self.raised.add(name)
        elif name not in self.plan.plain:
            self.channels[name] = self.plan.channels[name].from_checkpoint(stored)
            self._refresh(name)
        elif stored is not MISSING:
            self._hold(name, stored)
        elif name in self.values:
            self._drop(name)

    def write(self, name: str, values: Sequence[Any]) -> bool:
        """Give a channel the writes of a superstep. Return True if it changed."""
        plan = self.plan
        if name in plan.triggers:
            self.raised.add(name)
            return True
        if name in plan.plain:
            if len(values) != 1:
                plan.channels[name].update(values)  # raises InvalidUpdateError
            value = values[0]
            if type(value) in _SCALARS and name not in self.containers:
                self.values[name] = value
            else:
                self._hold(name, shallow_copy(value))  # the node that wrote it may go on changing its own
            return True
        changed = self._own(name).update(values)
        if changed:
            self._refresh(name)
        return changed

    def adopt(self, name: str, channel: BaseChannel[Any, Any]) -> None:
        """Replace a channel."""
        self.channels[name] = channel
        self._refresh(name)

    def consume(self, name: str) -> bool:
        """Tell a barrier that a task which it triggered has run. Return True if it changed."""
        changed = self._own(name).consume()
        if changed:
            self._refresh(name)
        return changed

    def finish(self, name: str) -> bool:
        """Tell a deferred channel that nothing else is left to do. Return True if it changed."""
        changed = self._own(name).finish()
        if changed:
            self._refresh(name)
        return changed

    def clear(self, name: str) -> None:
        """Tell a transient channel that nothing was written to it."""
        self._own(name).update(())
        self._refresh(name)

    def lower(self, names: Set[str]) -> None:
        """Lower triggers that were raised for a superstep which has run."""
        self.raised -= names

    def next_version(self, checkpoint_id: str) -> str:
        """Return a version greater than all before it, for the channels that a checkpoint will hold."""
        self.counter += 1
        return make_version(self.counter, checkpoint_id)

    def value(self, name: str, default: Any = MISSING) -> Any:
        """Return the value of any channel, not a copy; `default` if there is none."""
        if name in self.plan.state_keys:
            return self.values.get(name, default)
        if not self.available(name):
            return default
        return None if name in self.plan.triggers else self.channels[name].get()

    def _own(self, name: str) -> BaseChannel[Any, Any]:
        """Return a channel that this thread may change: the plan's own is copied first."""
        channel = self.channels[name]
        if channel is self.plan.channels[name]:
            channel = self.channels[name] = channel.copy()
        return channel

    def _refresh(self, name: str) -> None:
        """Update `values` and `transient` after a channel has changed."""
        channel = self.channels[name]
        available = channel.is_available()
        if available and channel.transient:
            self.transient.add(name)
        else:
            self.transient.discard(name)
        if name in self.plan.state_keys:
            if available:
                self._hold(name, channel.get())
            elif name in self.values:
                self._drop(name)

    def _hold(self, name: str, value: Any) -> None:
        self.values[name] = value
        if is_container(value):
            self.containers.add(name)
        elif name in self.containers:
            self.containers.discard(name)

    def _drop(self, name: str) -> None:
        del self.values[name]
        self.containers.discard(name)

    # The whole state

    def read(self) -> dict[str, Any]:
        """Return the whole state. Containers are shallow copies, which the caller may change."""
        view = self.values.copy()
        for key in self.containers:
            view[key] = shallow_copy(view[key])
        return view

    def select(self, keys: Iterable[str]) -> dict[str, Any]:
        """Return some keys of the state, like `read`."""
        values = self.values
        view = {key: values[key] for key in keys if key in values}
        for key in self.containers:
            if key in view:
                view[key] = shallow_copy(view[key])
        return view

    def preview(self, writes: Iterable[tuple[str, Any]]) -> Preview:
        """Return the state keys that one task writes to, as they would be after its writes."""
        plan = self.plan
        grouped: dict[str, list[Any]] = {}
        for key, value in writes:
            if key in plan.state_keys:
                grouped.setdefault(key, []).append(value)
        preview = Preview({}, {})
        for key, values in grouped.items():
            if key in plan.plain:
                preview.values[key] = values[-1]
                continue
            channel = preview.channels[key] = self.channels[key].copy()
            channel.update(values)
            if channel.is_available():
                preview.values[key] = channel.get()
        return preview

    def read_after(self, preview: Mapping[str, Any]) -> dict[str, Any]:
        """Return the whole state, like `read`, with the values of a preview."""
        view = self.read()
        for key, value in preview.items():
            view[key] = shallow_copy(value)
        return view
