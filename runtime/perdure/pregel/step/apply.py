"""The merge of a superstep's writes into the state, in one defined order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from perdure.channels.base import BaseChannel
from perdure.constants import MISSING, TASKS
from perdure.pregel.plan.plan import NodeSpec
from perdure.pregel.step.failures import add_note
from perdure.pregel.step.outcome import Finished, Outcome
from perdure.pregel.step.routing import called
from perdure.pregel.step.state import ThreadState


def _path(outcome: Outcome) -> tuple[str | int, ...]:
    return outcome.task.path


class Applied(NamedTuple):
    """The changes that a superstep made to the channels.

    Attributes:
        changed: all channels that changed.
        updated: the changed channels that can start tasks of the next superstep: they were written to, or
            released because nothing else was left to do.
    """

    changed: set[str]
    updated: list[str]


def apply(
    state: ThreadState,
    outcomes: Sequence[Outcome],
    checkpoint_id: str,
    *,
    stored: bool = True,
    real: bool = True,
) -> Applied:
    """Merge the writes of tasks into the state.

    Nodes come first, in the order of their names; then Sends, in the order in which they were sent. A task
    whose error handler took over wrote nothing. If the writes start no task, the deferred channels are
    released.

    All changed channels get one new version, named after the checkpoint that will hold them. If a channel
    refuses its writes (InvalidUpdateError), or its reducer raises, all values and versions are restored,
    except values that are never stored.

    Args:
        checkpoint_id: the id of the checkpoint that will hold the result.
        stored: False for a thread that no saver stores. It has no versions, because nothing is read again,
            and it is not restored after an error, because nothing can continue it.
        real: False for writes that no superstep made. They clear no transient channel, lower no trigger and
            release nothing.
    """
    if len(outcomes) == 1:
        [only] = ordered = outcomes
        preview = only.preview.channels if isinstance(only, Finished) else None
    else:
        ordered, preview = sorted(outcomes, key=_path), None
    grouped = _group(ordered)
    lowered = state.raised.difference(grouped) if real else set()
    before: list[tuple[str, Any]] | None = [] if stored else None
    try:
        changed = _consume(state, outcomes, before) if state.plan.barriers else set()
        updated = _write(state, ordered, grouped, preview, before)
        if real and state.plan.deferred and not _starts_anything(state, updated):
            updated = list(dict.fromkeys(updated + _release(state, before)))
    except BaseException:
        # In reverse, because a channel may have been noted twice: its first note is the one that counts.
        for name, value in reversed(before or ()):
            state.restore(name, value)
        raise
    changed.update(updated, lowered)
    if lowered:
        state.lower(lowered)
    if real and state.transient:
        for name in state.transient.difference(grouped):
            state.clear(name)
            changed.add(name)
    if stored:
        _mark_seen(state, outcomes)
        _set_versions(state, state.next_version(checkpoint_id), changed)
    return Applied(changed, updated)


def release(state: ThreadState, checkpoint_id: str) -> set[str]:
    """Release the deferred channels, because nothing else is left to do. Return those that changed."""
    changed = set(_release(state, None))
    if changed:
        _set_versions(state, state.next_version(checkpoint_id), changed)
    return changed


def _set_versions(state: ThreadState, version: str, changed: set[str]) -> None:
    """Give the changed channels a version, and take it from those that hold no value to store.

    Then every stored version has a stored value, and a lost value is not mistaken for an empty channel.
    """
    plain, versions = state.plan.plain, state.versions
    for name in changed:
        if name in plain or state.stored(name) is not MISSING:
            versions[name] = version
        else:
            versions.pop(name, None)


def _consume(
    state: ThreadState, outcomes: Sequence[Outcome], before: list[tuple[str, Any]] | None
) -> set[str]:
    """Tell barriers that the tasks which they triggered have run. Return the barriers that changed.

    This precedes all new writes, which count for the barrier's next round.
    """
    barriers = state.plan.barriers
    triggers = {trigger for ran in outcomes for trigger in ran.task.triggers if trigger in barriers}
    if before is not None:
        before.extend((trigger, state.stored(trigger)) for trigger in triggers)
    return {trigger for trigger in triggers if state.consume(trigger)}


def _starts_anything(state: ThreadState, updated: Sequence[str]) -> bool:
    """Return True if the updated channels start a task in the next superstep."""
    if TASKS in updated:
        return True
    plan = state.plan
    return any(
        _can_read(state, plan.nodes[node])
        for name in updated
        if name in plan.triggered and state.available(name)
        for node in plan.triggered[name]
    )


def _can_read(state: ThreadState, spec: NodeSpec) -> bool:
    return spec.reader is None or spec.reader.bare is None or state.available(spec.reader.bare)


def _release(state: ThreadState, before: list[tuple[str, Any]] | None) -> list[str]:
    """Release the deferred channels and return those that changed, like `release`, but without versions."""
    deferred = sorted(state.plan.deferred)
    if before is not None:
        before.extend((name, state.stored(name)) for name in deferred)
    return [name for name in deferred if state.finish(name)]


def _mark_seen(state: ThreadState, outcomes: Sequence[Outcome]) -> None:
    versions, seen = state.versions, state.seen
    for outcome in outcomes:
        task = outcome.task
        for trigger in task.triggers:
            if trigger in versions:
                seen.setdefault(task.spec.name, {})[trigger] = versions[trigger]


def _group(outcomes: Sequence[Outcome]) -> dict[str, list[Any]]:
    grouped: dict[str, list[Any]] = {}
    for outcome in outcomes:
        for name, value in outcome.writes:
            if name in grouped:
                grouped[name].append(value)
            else:
                grouped[name] = [value]
    return grouped


def _write(
    state: ThreadState,
    outcomes: Sequence[Outcome],
    grouped: dict[str, list[Any]],
    preview: dict[str, BaseChannel[Any, Any]] | None,
    before: list[tuple[str, Any]] | None,
) -> list[str]:
    """Give each channel its writes and return the channels that changed.

    Args:
        preview: the channels after the writes, if a superstep's only task has computed them already.
        before: collects the former value of each channel; None if nothing will be restored.
    """
    updated = []
    for name, values in grouped.items():
        if before is not None:
            before.append((name, state.stored(name)))
        if preview and name in preview:
            state.adopt(name, preview[name])
            updated.append(name)
        else:
            try:
                changed = state.write(name, values)
            except Exception as error:
                add_note(error, f"While merging what {_writers(outcomes, name)} wrote to state key {name!r}")
                raise
            if changed:
                updated.append(name)
    return updated


def _writers(outcomes: Sequence[Outcome], name: str) -> str:
    """Name the nodes that wrote to a channel, each once, in the order of merging."""
    writers = [ran.task.name for ran in outcomes for written, _ in ran.writes if written == name]
    return ", ".join(map(called, dict.fromkeys(writers)))
