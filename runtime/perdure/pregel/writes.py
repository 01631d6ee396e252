"""What a node's return value writes, and where it goes."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Sequence
from difflib import get_close_matches
from inspect import isawaitable
from typing import Any

from perdure.constants import END, START, TASKS, branch_channel
from perdure.context import current_task
from perdure.data import Command, Send
from perdure.errors import InvalidUpdateError, InvalidUpdateWarning
from perdure.pregel.plan import Branch, Plan
from perdure.pregel.state import ThreadState
from perdure.pregel.task import Task, Writes


def writes_of(plan: Plan, task: Task, result: Any) -> Writes:
    """The writes of a node that returned `result`: its update, then what it goes to, then its edges."""
    writes: Writes = []
    if type(result) is dict:
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
            for target in _targets(result.goto):
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
        else:
            _warn_unknown(plan, task, key)


_MOST_WARNINGS = 1_000
_warned: set[tuple[str, str, str, str]] = set()


def _warn_unknown(plan: Plan, task: Task, key: object) -> None:
    """Once for each graph, node and key: a key that is misspelt is misspelt every time."""
    seen = (plan.name, plan.signature, task.name, str(key))
    if seen in _warned or len(_warned) >= _MOST_WARNINGS:
        return
    _warned.add(seen)
    source = "The input" if task.name == START else f"Node {task.name!r}"
    warnings.warn(
        f"{source} wrote to {key!r}, which is not a key of the state; the write is dropped."
        + _nearest(str(key), plan.state_keys),
        InvalidUpdateWarning,
        stacklevel=2,
    )


def _nearest(name: str, known: Any) -> str:
    close = get_close_matches(name, [k for k in known if k != START], n=1)
    return f" Did you mean {close[0]!r}?" if close else f" Known: {', '.join(sorted(set(known) - {START}))}."


def destination(plan: Plan, source: str, said_by: str, target: Any) -> Writes:
    """The write that starts `target` in the next superstep; none for END.

    Raises InvalidUpdateError, naming the nearest node, if there is no such node.
    """
    if target == END:
        return []
    name = target.node if isinstance(target, Send) else target
    if name == END:
        raise InvalidUpdateError(f"Cannot send a packet to the END node; {said_by} of {source!r} does.")
    if not isinstance(name, str):
        raise InvalidUpdateError(
            f"{said_by} of {source!r} gave {target!r} as a destination: expected a node's name, "
            "a Send, or END."
        )
    if name == START or name not in plan.nodes:
        raise InvalidUpdateError(
            f"{said_by} of {source!r} goes to {name!r}, which is not a node." + _nearest(name, plan.nodes)
        )
    return [(TASKS, target)] if isinstance(target, Send) else [(branch_channel(name), None)]


async def route(plan: Plan, state: ThreadState, task: Task, writes: Writes) -> None:
    """Follow the task's conditional edges, which see the state with the task's own writes applied."""
    task.preview = state.preview(writes)
    for branch in task.spec.branches:
        chosen = branch.path(state.read_after(task.preview.values))
        if isawaitable(chosen):
            chosen = await chosen
        for target in _targets(chosen):
            writes.extend(_follow(plan, task, branch, target))


def _targets(chosen: Any) -> Sequence[Any]:
    return chosen if isinstance(chosen, list | tuple) else (chosen,)


def _follow(plan: Plan, task: Task, branch: Branch, target: Any) -> Writes:
    said_by = f"Conditional edge {branch.name!r}"
    if branch.ends is not None and not isinstance(target, Send):
        if not isinstance(target, Hashable) or target not in branch.ends:
            raise InvalidUpdateError(
                f"{said_by} of {task.name!r} returned {target!r}, which its path_map does not have: "
                f"{', '.join(map(repr, branch.ends))}."
            )
        target = branch.ends[target]
    if target is None or target == START:
        raise InvalidUpdateError(
            f"Branch did not return a valid destination: {said_by} of {task.name!r} returned {target!r}; "
            "return a node's name, a Send, a list of them, or END."
        )
    return destination(plan, task.name, said_by, target)


def update_event(task: Task, output_keys: frozenset[str]) -> Any:
    """What the task wrote to `output_keys`: a dict, None, or a list of dicts if a key was written twice."""
    updates: list[dict[str, Any]] = [{}]
    for key, value in task.writes or ():
        if key in output_keys:
            if key in updates[-1]:
                updates.append({})
            updates[-1][key] = value
    return updates if len(updates) > 1 else updates[0] or None


def running_task() -> Task | None:
    """The task whose node is running here, if any."""
    task = current_task.get()
    return task if isinstance(task, Task) else None
