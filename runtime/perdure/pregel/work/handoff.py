"""Commands that a node gives to a graph around its own.

Such a command ends the superstep of the graph that the node belongs to, and with it that graph: it
travels up as a ParentCommand, out of the call that ran the graph, to the node that made this call. There
it takes the place of what that node would have returned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from perdure.constants import NAMESPACE_SEPARATOR
from perdure.data import Command
from perdure.errors import GraphBubbleUp, InvalidUpdateError, ParentCommand
from perdure.pregel.step.failures import leaves
from perdure.pregel.step.outcome import Left
from perdure.pregel.work.running import RunningTask


def departing(task: RunningTask, result: Any) -> ParentCommand | None:
    """Return what to raise for the Commands in a node's result that are for a graph around; None without any.

    Raises InvalidUpdateError if there is no such graph, or if they are for several.
    """
    if not isinstance(result, Command | list | tuple):
        return None
    items = [result] if isinstance(result, Command) else result
    commands = [item for item in items if isinstance(item, Command)]
    outward = [(_target(task, command), command) for command in commands if not is_local(task, command)]
    if not outward:
        return None
    (target, _), *others = outward
    if any(other is not target for other, _ in others):
        raise InvalidUpdateError(
            f"Node {task.task.name!r} returned Commands for different graphs: "
            f"{', '.join(repr(command.graph) for _, command in outward)}. It can leave for one of them only."
        )
    departures = [command for _, command in outward]
    return ParentCommand(departures if others else departures[0], target=target)


def is_local(task: RunningTask, command: Command[Any]) -> bool:
    """Return whether a command of the task is for the graph that the task belongs to."""
    return command.graph is None or (command.graph != Command.PARENT and _is_called(task, command.graph))


def _target(task: RunningTask, command: Command[Any]) -> RunningTask:
    around = list(_around(task))
    if not around:
        raise InvalidUpdateError(
            f"There is no parent graph: node {task.task.name!r} returned Command(graph={command.graph!r}), "
            "but the graph that it is part of does not run in a node of another."
        )
    for above in around:
        if command.graph == Command.PARENT or _is_called(above, command.graph):
            return above
    raise InvalidUpdateError(
        f"Node {task.task.name!r} returned Command(graph={command.graph!r}), but runs in no node of that "
        f"name. It runs in: {', '.join(repr(above.task.name) for above in around)}."
    )


def _around(task: RunningTask) -> Iterator[RunningTask]:
    """Yield the tasks in whose nodes this one runs, the nearest first."""
    above = task.scope.above
    while above is not None:
        yield above
        above = above.scope.above


def _is_called(task: RunningTask, name: str | None) -> bool:
    namespace = task.task.namespace
    return name in (task.task.name, namespace.text, NAMESPACE_SEPARATOR.join(namespace.names))


def arriving(task: RunningTask, raised: BaseException) -> Any:
    """Return the Commands that a node raised for this task, as if it had returned them.

    Anything else is raised again, and so is a group that holds a real error beside the commands.
    """
    bubble = raised
    if isinstance(raised, BaseExceptionGroup):
        inside = list(leaves(raised))
        if not all(isinstance(each, GraphBubbleUp) for each in inside):
            raise raised
        commands = [each for each in inside if isinstance(each, ParentCommand)]
        bubble = joined(commands) if commands else raised
    if not isinstance(bubble, ParentCommand):
        raise raised
    if bubble.target is None:  # raised by the node itself
        return bubble.command
    if bubble.target is not task:
        _require_around(task, bubble)
        raise bubble
    return [replace(command, graph=None) for command in _listed(bubble.command)]


def _require_around(task: RunningTask, bubble: ParentCommand) -> None:
    """Refuse a ParentCommand that was kept from one node and raised in another: nobody would catch it."""
    if all(above is not bubble.target for above in _around(task)):
        raise InvalidUpdateError(
            f"Node {task.task.name!r} raised a ParentCommand that is for a node that it does not run in. "
            "Return the Command instead."
        ) from bubble


def joined(bubbles: Sequence[ParentCommand]) -> BaseException:
    """Return what several tasks of one superstep raised, as one; an error if it is for several graphs."""
    first = bubbles[0]
    if len(bubbles) == 1:
        return first
    if any(bubble.target is not first.target for bubble in bubbles):
        return InvalidUpdateError(
            "Nodes of one superstep returned Commands for different graphs around theirs: "
            f"{', '.join(repr(each.graph) for bubble in bubbles for each in _listed(bubble.command))}. "
            "It can be left for one of them only."
        )
    commands = [command for each in bubbles for command in _listed(each.command)]
    return ParentCommand(commands, target=first.target)


def _listed(command: Any) -> list[Command[Any]]:
    return command if isinstance(command, list) else [command]


def joined_departures(left: Sequence[Left]) -> BaseException:
    """Return the commands of all tasks of a superstep that left, in the order of their paths, as one."""
    ordered = sorted(left, key=lambda outcome: outcome.task.path)
    return joined([outcome.command for outcome in ordered])
