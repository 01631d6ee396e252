"""A thread's state while it is worked on: values, triggers, versions, and who has seen which."""

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
    """The state keys that a task wrote to, as its own writes leave them."""

    values: dict[str, Any]
    channels: dict[str, BaseChannel[Any, Any]]


class ThreadState:
    """Everything that `prepare` reads and `apply` changes.

    Of most channels there is nothing to keep but a value, or whether they are raised; they have no
    channel object here, and the plan's is only asked to refuse what it does not take.

    Attributes:
        values: the state keys that have a value; reading the state costs one dict copy.
        raised: the triggers that are set. The next superstep lowers them.
        channels: the plan's until they are first written to, then this thread's own.
        containers: those of `values` that are mutable containers, and so are copied when read.
        transient: channels that hold a value which the next superstep clears.
        counter: the greatest counter of any version.
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
        """The state that a checkpoint holds. Channels that the graph no longer has are left behind.

        Raises InvalidPayloadError if a value is missing: a lost Send or trigger would look like nothing
        left to do.
        """
        state = cls(plan)
        values = checkpoint["channel_values"]
        for name, version in checkpoint["channel_versions"].items():
            if name not in values:
                raise InvalidPayloadError(
                    f"Checkpoint {checkpoint['id']} says that channel {name!r} has a value of version "
                    f"{version}, but there is none. Rows of this thread were deleted by something other than "
                    "the saver."
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
        """Whether the channel has a value, or is raised."""
        if name in self.plan.triggers:
            return name in self.raised
        if name in self.plan.plain:
            return name in self.values
        return self.channels[name].is_available()

    def stored(self, name: str) -> Any:
        """What to store of a channel; MISSING where there is nothing."""
        if name in self.plan.triggers:
            return None if name in self.raised else MISSING
        if name in self.plan.plain:
            return self.values.get(name, MISSING)
        return self.channels[name].checkpoint()

    def restore(self, name: str, stored: Any) -> None:
        """Make a channel what it was when `stored` was made of it."""
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
        """Give a channel the writes of a superstep; returns whether it changed."""
        plan = self.plan
        if name in plan.triggers:
            self.raised.add(name)
            return True
        if name in plan.plain:
            if len(values) != 1:
                plan.channels[name].update(values)  # which refuses
            value = values[0]
            if type(value) in _SCALARS and name not in self.containers:
                self.values[name] = value
            else:
                self._hold(name, shallow_copy(value))  # whoever wrote it may go on changing theirs
            return True
        changed = self._own(name).update(values)
        if changed:
            self._refresh(name)
        return changed

    def adopt(self, name: str, channel: BaseChannel[Any, Any]) -> None:
        """Put a channel in place of the one there was."""
        self.channels[name] = channel
        self._refresh(name)

    def consume(self, name: str) -> bool:
        """Tell a barrier that the task it triggered has run; returns whether it changed."""
        changed = self._own(name).consume()
        if changed:
            self._refresh(name)
        return changed

    def finish(self, name: str) -> bool:
        """Tell a channel that waits for it that nothing is left to do; returns whether it changed."""
        changed = self._own(name).finish()
        if changed:
            self._refresh(name)
        return changed

    def clear(self, name: str) -> None:
        """Tell a transient channel that nothing was written to it."""
        self._own(name).update(())
        self._refresh(name)

    def lower(self, names: Set[str]) -> None:
        """Take back triggers that were raised for a superstep which has run."""
        self.raised -= names

    def next_version(self, checkpoint_id: str) -> str:
        """Return a version greater than all before it, for the channels that a checkpoint will hold."""
        self.counter += 1
        return make_version(self.counter, checkpoint_id)

    def value(self, name: str, default: Any = MISSING) -> Any:
        """The value of any channel; the default where there is none. Not a copy."""
        if name in self.plan.state_keys:
            return self.values.get(name, default)
        if not self.available(name):
            return default
        return None if name in self.plan.triggers else self.channels[name].get()

    def _own(self, name: str) -> BaseChannel[Any, Any]:
        channel = self.channels[name]
        if channel is self.plan.channels[name]:
            channel = self.channels[name] = channel.copy()
        return channel

    def _refresh(self, name: str) -> None:
        """Bring `values` and `transient` in step with a channel."""
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
        """The whole state, the caller's to change: containers are shallow copies."""
        view = self.values.copy()
        for key in self.containers:
            view[key] = shallow_copy(view[key])
        return view

    def select(self, keys: Iterable[str]) -> dict[str, Any]:
        """Like `read`, of some keys."""
        values = self.values
        view = {key: values[key] for key in keys if key in values}
        for key in self.containers:
            if key in view:
                view[key] = shallow_copy(view[key])
        return view

    def preview(self, writes: Iterable[tuple[str, Any]]) -> Preview:
        """What `writes`, of one task, would make of the state keys they touch."""
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
        """Like `read`, with the values of a preview."""
        view = self.read()
        for key, value in preview.items():
            view[key] = shallow_copy(value)
        return view
