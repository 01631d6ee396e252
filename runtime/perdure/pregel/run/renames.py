"""Renamed nodes: threads that were stored under old names, read in the names of today.

A task that waits on a renamed node keeps the id and the namespace that it had under the old name. So the
results that are stored for it, and for graphs below it, are found. From the next superstep on, everything is
stored under the new names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from perdure.channels.named_barrier_value import arrived
from perdure.checkpoint.base import CheckpointTuple, PendingWrite
from perdure.constants import BRANCH, JOIN, TASKS, branch_channel, is_trigger
from perdure.data import Send
from perdure.pregel.plan.plan import Plan
from perdure.pregel.step.commands import kept_commands
from perdure.pregel.step.task import FormerTask, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """A stored thread in the names of today.

    Attributes:
        stored: the thread, with today's names.
        channels: the old names of triggers, by today's names.
        sends: the old names of the nodes of Sends, by the place of the Send; those of commands come last.
    """

    stored: CheckpointTuple
    channels: Mapping[str, str] = field(default_factory=dict)
    sends: Mapping[int, str] = field(default_factory=dict)

    def marked(self, tasks: list[Task]) -> list[Task]:
        """Return the tasks that were prepared from `stored`, each with the identity that it had there."""
        if not (self.channels or self.sends):
            return tasks
        return [task._replace(former=self._former(task)) for task in tasks]

    def _former(self, task: Task) -> FormerTask | None:
        triggers = tuple(sorted(self.channels.get(trigger, trigger) for trigger in task.triggers))
        if isinstance(task.path[1], int):
            name = self.sends.get(task.path[1])
            return None if name is None else FormerTask(name, task.path, task.triggers)
        if triggers == task.triggers:
            return None
        # A trigger's name ends with that of the node, which has no colon.
        names = {former.rpartition(":")[2] for former in triggers}
        name = task.name if task.name in names else min(names)
        return FormerTask(name, (task.path[0], name), triggers)


def follow(plan: Plan, stored: CheckpointTuple) -> Followed:
    """Return a stored thread in the names that nodes have today."""
    if not plan.renamed:
        return Followed(stored=stored)
    checkpoint = stored.checkpoint
    versions, values = checkpoint["channel_versions"], checkpoint["channel_values"]
    now = {name: new for name in versions if (new := _channel(plan, name)) != name and new not in versions}
    commanded = [write for writes in kept_commands(stored.pending_writes or ()).values() for write in writes]
    now |= {name: new for name, _ in commanded if (new := _channel(plan, name)) != name}
    sent = [*values.get(TASKS, ()), *(send for name, sends in commanded if name == TASKS for send in sends)]
    sends = {place: send.node for place, send in enumerate(sent) if send.node in plan.renamed}
    followed = {now.get(name, name): _value(plan, name, value) for name, value in values.items()}
    return Followed(
        stored=stored._replace(
            checkpoint={
                **checkpoint,
                "channel_values": followed,
                "channel_versions": {now.get(name, name): version for name, version in versions.items()},
                "versions_seen": _seen(plan, checkpoint["versions_seen"]),
            },
            pending_writes=[_write(plan, write) for write in stored.pending_writes or ()],
        ),
        channels={new: old for old, new in now.items()},
        sends=sends,
    )


def _channel(plan: Plan, name: str) -> str:
    """Return today's name of a stored trigger. Other channels, and triggers that are gone, keep theirs."""
    if name in plan.channels or not is_trigger(name):
        return name
    starts, _, end = name.removeprefix(JOIN).rpartition(":")
    end = plan.renamed.get(end, end)
    now = branch_channel(end) if name.startswith(BRANCH) else f"{JOIN}{_starts(plan, starts)}:{end}"
    return now if now in plan.channels else name


def _starts(plan: Plan, starts: str) -> str:
    for old, new in plan.renamed.items():
        starts = f"+{starts}+".replace(f"+{old}+", f"+{new}+")[1:-1]
    return starts


def _value(plan: Plan, name: str, value: Any) -> Any:
    """Return a channel's stored value with today's names in Sends and in the arrivals at a join."""
    if name == TASKS:
        return [_send(plan, send) for send in value]
    if not name.startswith(JOIN):
        return value
    names = [plan.renamed.get(start, start) for start in arrived(value)]
    return {**value, "names": names} if isinstance(value, dict) else names


def _send(plan: Plan, send: Send) -> Send:
    return replace(send, node=plan.renamed[send.node]) if send.node in plan.renamed else send


def _write(plan: Plan, write: PendingWrite) -> PendingWrite:
    task_id, name, value = write
    if name == TASKS:
        return task_id, name, [_send(plan, send) for send in value]
    if not is_trigger(name):
        return write
    return task_id, _channel(plan, name), plan.renamed.get(value, value) if name.startswith(JOIN) else value


def _seen(plan: Plan, stored: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """Return the versions that each node has seen. Of an old and a new name, the greater version counts."""
    seen: dict[str, dict[str, str]] = {}
    for node, versions in stored.items():
        known = seen.setdefault(plan.renamed.get(node, node), {})
        for name, version in versions.items():
            now = _channel(plan, name)
            known[now] = max(known.get(now, ""), version)
    return seen
