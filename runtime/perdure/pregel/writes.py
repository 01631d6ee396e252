"""What a node's return value writes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from inspect import isawaitable
from typing import Any

from perdure.constants import START
from perdure.data import Command, Send
from perdure.errors import InvalidUpdateError, InvalidUpdateWarning
from perdure.pregel.plan import Plan
from perdure.pregel.routing import destination, nearest, targets
from perdure.pregel.task import Task, Writes


def writes_of(plan: Plan, task: Task, result: Any) -> Writes:
    """The writes of a node that returned `result`: its update, then what it goes to, then its edges."""
    writes: Writes = []
    if task.spec.writer is not None:
        writes = task.spec.writer(result)
    elif type(result) is dict:
        _update(plan, task, result.items(), writes)
    elif result is not None:
        _add(plan, task, result, writes)
    writes.extend(task.spec.edges)
    return writes


def _add(plan: Plan, task: Task, result: Any, writes: Writes) -> None:
    match result:
        case Command():
            if result.update is not None:
                _update(plan, task, _pairs(task, result.update), writes)
            for target in targets(result.goto):
                writes.extend(destination(plan, task.name, "Command.goto", target))
        case Mapping():
            _update(plan, task, result.items(), writes)
        case Send():
            writes.extend(destination(plan, task.name, "its return value", result))
        case list() | tuple() if any(isinstance(item, Command | Send) for item in result):
            for item in result:
                if item is not None:
                    _add(plan, task, item, writes)
        case _:
            raise _not_an_update(task, result)


def _not_an_update(task: Task, result: Any) -> InvalidUpdateError:
    shown = repr(result) if len(repr(result)) <= 60 else repr(result)[:60] + "…"
    if task.name == START:
        return InvalidUpdateError(
            f"Expected dict, got {shown}: the input of this graph is a mapping of its state's keys, "
            f"not {type(result).__name__}."
        )
    hint = " Did you forget `await`?" if isawaitable(result) else ""
    return InvalidUpdateError(
        f"Expected dict, got {shown} from node {task.name!r}: a node returns a mapping of state keys, "
        f"a Command, a Send, a list of these, or None, not {type(result).__name__}.{hint}"
    )


def _pairs(task: Task, update: Any) -> Any:
    if isinstance(update, Mapping):
        return update.items()
    if isinstance(update, list | tuple) and all(isinstance(p, list | tuple) and len(p) == 2 for p in update):
        return update
    raise _not_an_update(task, update)


def _update(plan: Plan, task: Task, pairs: Any, writes: Writes) -> None:
    keys = plan.input_keys if task.spec.name == START else plan.state_keys
    for key, value in pairs:
        if key in keys:
            writes.append((key, value))
        elif plan.strict:
            raise InvalidUpdateError(_unknown(plan, task, key, "nothing of the update is kept"))
        else:
            _warn_unknown(plan, task, key)


def _unknown(plan: Plan, task: Task, key: object, consequence: str) -> str:
    source = "The input" if task.name == START else f"Node {task.name!r}"
    return f"{source} wrote to {key!r}, which is not a key of the state; {consequence}." + nearest(
        str(key), plan.state_keys
    )


_MOST_WARNINGS = 1_000
_warned: set[tuple[str, str, str, str]] = set()


def _warn_unknown(plan: Plan, task: Task, key: object) -> None:
    """Once for each graph, node and key: a key that is misspelt is misspelt every time."""
    seen = (plan.name, plan.signature, task.name, str(key))
    if seen in _warned or len(_warned) >= _MOST_WARNINGS:
        return
    _warned.add(seen)
    warnings.warn(_unknown(plan, task, key, "the write is dropped"), InvalidUpdateWarning, stacklevel=2)


def update_event(task: Task, output_keys: str | Sequence[str], known: frozenset[str]) -> Any:
    """What the task wrote to the output: a dict, None, or a list of dicts if a key was written twice.

    Of an output that is one bare value, that value.
    """
    if isinstance(output_keys, str):
        values = [value for key, value in task.writes or () if key == output_keys]
        return values if len(values) > 1 else values[0] if values else None
    updates: list[dict[str, Any]] = [{}]
    for key, value in task.writes or ():
        if key in known:
            if key in updates[-1]:
                updates.append({})
            updates[-1][key] = value
    return updates if len(updates) > 1 else updates[0] or None
