"""Destinations: the writes that start the nodes which commands, Sends and conditional edges name."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from perdure.constants import END, INPUT, START, TASKS, branch_channel
from perdure.data import Send
from perdure.errors import InvalidUpdateError
from perdure.pregel.plan.limits import timeout_policy
from perdure.pregel.plan.names import nearest
from perdure.pregel.plan.plan import Branch, Calling, Plan
from perdure.pregel.step.task import Writes


def destination(plan: Plan, source: str, said_by: str, target: Any) -> Writes:
    """Return the write that starts `target` in the next superstep; none for END.

    Args:
        source: the node that named the target.
        said_by: the part of the node that named it, for errors.

    Raises:
        InvalidUpdateError: the target is not a node. The error names the node with the nearest name.
    """
    if target == END:
        return []
    name = target.node if isinstance(target, Send) else target
    if name == END:
        raise InvalidUpdateError(
            f"Cannot send a packet to the END node: {said_by} of {called(source)} is a Send to END. Use END "
            "itself as the destination."
        )
    if not isinstance(name, str):
        raise InvalidUpdateError(
            f"{said_by} of {called(source)} has the destination {target!r}. Expected a node's name, a Send "
            "or END."
        )
    if name == START or name not in plan.nodes:
        raise InvalidUpdateError(
            f"{said_by} of {called(source)} goes to {name!r}, which is not a node."
            + nearest(name, plan.nodes)
        )
    if not isinstance(target, Send):
        return [(branch_channel(name), None)]
    if target.timeout is not None:
        _check_timeout(plan, source, said_by, target)
    return [(TASKS, target)]


def called(source: str) -> str:
    """Return the words for a node in messages."""
    return "the input" if source in (START, INPUT) else repr(source)


def _check_timeout(plan: Plan, source: str, said_by: str, send: Send) -> None:
    """Refuse a Send's timeout where the Send is made, rather than in the superstep that would use it."""
    try:
        limits = timeout_policy(send.timeout)
    except (TypeError, ValueError) as error:
        raise InvalidUpdateError(
            f"{said_by} of {called(source)} is a Send to {send.node!r} with a bad timeout: {error}"
        ) from error
    if limits is not None and plan.nodes[send.node].calling is Calling.THREAD:
        raise InvalidUpdateError(
            f"{said_by} of {called(source)} is a Send with a timeout to {send.node!r}, which is a sync node: "
            "its thread cannot be stopped. Make the node async, or leave the timeout out."
        )


def targets(chosen: Any) -> Sequence[Any]:
    """Return one destination or several as a sequence."""
    return chosen if isinstance(chosen, list | tuple) else (chosen,)


def follow_branch(plan: Plan, node: str, branch: Branch, target: Any) -> Writes:
    """Return the write for one destination that the path of a conditional edge chose."""
    said_by = f"Conditional edge {branch.name!r}"
    if branch.ends is not None and not isinstance(target, Send):
        if isinstance(target, Hashable) and target in branch.ends:
            target = branch.ends[target]
        elif target is not None:
            raise InvalidUpdateError(
                f"{said_by} of {node!r} returned {target!r}, which is not in its path_map. Return one of: "
                f"{', '.join(map(repr, branch.ends))}."
            )
    if target is None or target == START:
        raise InvalidUpdateError(
            f"Branch did not return a valid destination: {said_by} of {node!r} returned {target!r}. "
            "Return a node's name, a Send, a list of them, or END."
        )
    return destination(plan, node, said_by, target)
