"""Merging a superstep's writes into the state, in one documented order."""

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
    """What a superstep did to the channels.

    Attributes:
        changed: every channel that is not what it was.
        updated: those of them that were written to, or released because nothing else was left to do; they
            drive the next superstep.
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
    """Merge the writes of finished tasks: nodes in the order of their names, then Sends in theirs.

    A task whose error handler took over counts as one that wrote nothing.

    If nothing that was written starts a task, what waits for that is released.

    Every channel that changes gets the same new version, named after the checkpoint that will
    hold it. If a channel refuses what was written to it (InvalidUpdateError), or its reducer
    raises, the values and versions are as they were, but for values that are never stored.

    Of a thread that is not `stored` nothing is read again: it has no versions, and nobody knows what was
    seen of them; when a channel refuses, it is of no more use.

    Writes that no superstep made are not `real`: they clear nothing that they do not write to, and
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
        for name, stored in reversed(before or ()):
            state.restore(name, stored)
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
    """Let the channels that wait for it know that nothing is left to do; returns those that changed."""
    changed = set(_release(state, None))
    if changed:
        _set_versions(state, state.next_version(checkpoint_id), changed)
    return changed


def _set_versions(state: ThreadState, version: str, changed: set[str]) -> None:
    """Give the changed channels their version; one that holds nothing to be stored any more has none.

    So a stored version always has a stored value, and one that is lost is not taken for an empty one.
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
    """Let the barriers that triggered tasks know it, before anything new is written to them."""
    barriers = state.plan.barriers
    triggers = {trigger for ran in outcomes for trigger in ran.task.triggers if trigger in barriers}
    if before is not None:
        before.extend((trigger, state.stored(trigger)) for trigger in triggers)
    return {trigger for trigger in triggers if state.consume(trigger)}


def _starts_anything(state: ThreadState, updated: Sequence[str]) -> bool:
    """Whether these channels start a task in the next superstep."""
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
    """Let the channels that wait for it know that nothing is left to do; returns those that changed."""
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
    """Give each channel its writes; returns those that changed, and leaves in `before` what they were.

    A preview of the only task's writes is already what comes of them.
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
    """Who wrote to a channel, in the order of merging; a node that was sent to several times, once."""
    writers = [ran.task.name for ran in outcomes for written, _ in ran.writes if written == name]
    return ", ".join(map(called, dict.fromkeys(writers)))
