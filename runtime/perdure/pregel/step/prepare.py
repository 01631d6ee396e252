"""The preparation of a superstep: its tasks as a function of the state, never of timing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from perdure.channels.base import shallow_copy
from perdure.constants import MISSING, PULL, PUSH, START, TASKS
from perdure.data import Send
from perdure.errors import MissingNodeError
from perdure.ids import path_text
from perdure.pregel.plan.limits import timeout_policy
from perdure.pregel.plan.plan import NodeSpec, Plan, Policies
from perdure.pregel.step.failures import add_note
from perdure.pregel.step.read import read
from perdure.pregel.step.state import ThreadState
from perdure.pregel.step.task import Superstep, Task

PUSH_TRIGGERS = (PUSH,)
_NO_POLICIES = Policies()


def prepare(
    plan: Plan,
    state: ThreadState,
    updated: Iterable[str] | None,
    superstep: Superstep,
    *,
    build: bool = True,
) -> list[Task]:
    """Return the tasks of the next superstep: Sends in the order of sending, then nodes by name.

    Args:
        updated: the channels that the last superstep wrote to. None if they are not known: then every node
            is examined, and the nodes come in the order in which they were added.
        build: False to leave inputs that have a schema unbuilt, for a caller that only looks at a thread.
            Building can fail, because the schema may refuse the state.
    """
    if updated is None:
        fired = fired_anywhere(plan, state)
        names: Iterable[str] = fired
    else:
        fired = _fired_by(plan, state, updated)
        names = sorted(fired) if len(fired) > 1 else fired
    tasks = _sent(plan, state, superstep) if TASKS in state.transient else []
    nodes = plan.nodes
    for name in names:
        spec = nodes[name]
        triggers = fired[name]
        if len(triggers) > 1:
            triggers.sort()
        given = state.read() if spec.reader is None else _given(spec, state, superstep, build)
        if given is not MISSING:
            tasks.append(Task(spec, (PULL, name), tuple(triggers), given, superstep))
    return tasks


def _given(spec: NodeSpec, state: ThreadState, superstep: Superstep, build: bool = True) -> Any:
    """Return a node's input; MISSING if the node reads a single channel and that is empty."""
    reader = spec.reader
    if not build and (reader is None or reader.bare is None):
        return None
    try:
        return read(reader, state, superstep)
    except Exception as error:
        add_note(error, f"Before task with name {spec.name!r} and path {path_text((PULL, spec.name))!r}")
        raise


def _fired_by(plan: Plan, state: ThreadState, updated: Iterable[str]) -> dict[str, list[str]]:
    """Return the nodes that the updated channels trigger, each with these triggers.

    Versions need no comparison: those of updated channels are new, so no node has seen them.
    """
    fired: dict[str, list[str]] = {}
    for channel in updated:
        names = plan.triggered.get(channel)
        if names is None or not state.available(channel):
            continue
        for name in names:
            if name in fired:
                fired[name].append(channel)
            else:
                fired[name] = [channel]
    return fired


def fired_anywhere(plan: Plan, state: ThreadState) -> dict[str, list[str]]:
    """Return the nodes with an available trigger whose version they have not seen, and these triggers."""
    fired: dict[str, list[str]] = {}
    if not state.versions:
        return fired
    for name, spec in plan.nodes.items():
        seen = state.seen.get(name, {})
        for trigger in spec.triggers:
            version = state.versions.get(trigger)
            if version is None or not state.available(trigger):
                continue
            if trigger not in seen or version > seen[trigger]:
                fired.setdefault(name, []).append(trigger)
    return fired


def _sent(plan: Plan, state: ThreadState, superstep: Superstep) -> list[Task]:
    sends: list[Send] = state.channels[TASKS].get()
    tasks = []
    for index, send in enumerate(sends):
        spec = plan.nodes.get(send.node)
        if spec is None:
            raise MissingNodeError(
                f"The thread holds a Send to node {send.node!r}, which graph {plan.name!r} does not have. "
                f"Its nodes are: {', '.join(name for name in plan.nodes if name != START)}. If the node was "
                f"renamed, compile the graph with renamed={{{send.node!r}: '<new name>'}}."
            )
        if send.timeout is not None:
            policies = replace(spec.policies or _NO_POLICIES, timeout=timeout_policy(send.timeout))
            spec = replace(spec, policies=policies)
        tasks.append(Task(spec, (PUSH, index), PUSH_TRIGGERS, shallow_copy(send.arg), superstep))
    return tasks


def given_again(state: ThreadState, task: Task) -> Any:
    """Make a task's input anew, so that changes to an earlier one do not show.

    An error handler gets the input of the node that has failed.
    """
    kind, place, *_ = task.path
    if kind == PULL:
        spec = task.spec if task.handles is None else state.plan.nodes[task.handles.node]
        return _given(spec, state, task.superstep)
    arg = state.channels[TASKS].get()[place].arg
    if type(arg) is dict:  # a state or a part of one, of which nodes get every value as a copy
        return {key: shallow_copy(value) for key, value in arg.items()}
    return shallow_copy(arg)
