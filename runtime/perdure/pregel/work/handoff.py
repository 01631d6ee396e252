"""The handoff of commands to a parent graph.

A node that returns such a command ends the superstep of its graph, and with it the graph's run. The command
travels up as a ParentCommand: the call that ran the graph raises it in the node that made the call. There it
takes the place of that node's result.
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
    """Return the exception for the Commands in a node's result that are for a parent graph; None if none is.

    Raises:
        InvalidUpdateError: there is no such graph, or the Commands are for several graphs.
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
            f"Node {task.task.name!r} returned Commands for different parent graphs: "
            f"{', '.join(repr(command.graph) for _, command in outward)}. Return Commands for one only."
        )
    departures = [command for _, command in outward]
    return ParentCommand(departures if others else departures[0], target=target)


def is_local(task: RunningTask, command: Command[Any]) -> bool:
    """Return True if a command of the task is for the graph that the task belongs to."""
    return command.graph is None or (command.graph != Command.PARENT and _is_called(task, command.graph))


def _target(task: RunningTask, command: Command[Any]) -> RunningTask:
    around = list(_around(task))
    if not around:
        raise InvalidUpdateError(
            f"There is no parent graph: node {task.task.name!r} returned Command(graph={command.graph!r}), "
            "but its graph does not run in a node of another graph. Leave `graph` out."
        )
    for above in around:
        if command.graph == Command.PARENT or _is_called(above, command.graph):
            return above
    raise InvalidUpdateError(
        f"Node {task.task.name!r} returned Command(graph={command.graph!r}), but runs in no node of this "
        f"name. Use one of those in which it runs: {', '.join(repr(above.task.name) for above in around)}."
    )


def _around(task: RunningTask) -> Iterator[RunningTask]:
    """Yield the tasks in whose nodes a task runs, the nearest first."""
    above = task.scope.above
    while above is not None:
        yield above
        above = above.scope.above


def _is_called(task: RunningTask, name: str | None) -> bool:
    namespace = task.task.namespace
    return name in (task.task.name, namespace.text, NAMESPACE_SEPARATOR.join(namespace.names))


def arriving(task: RunningTask, raised: BaseException) -> Any:
    """Return the Commands for this task that its node raised, as if the node had returned them.

    Any other exception is raised again, and so is a group that contains an error beside the commands.
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
    """Refuse a ParentCommand that was caught in one node and raised in another: nothing would catch it."""
    if all(above is not bubble.target for above in _around(task)):
        raise InvalidUpdateError(
            f"Node {task.task.name!r} raised a ParentCommand for a node in which it does not run. "
            "Return the Command instead."
        ) from bubble


def joined(bubbles: Sequence[ParentCommand]) -> BaseException:
    """Return the ParentCommands of several tasks of one superstep as one.

    Returns an InvalidUpdateError instead if they are for different graphs.
    """
    first = bubbles[0]
    if len(bubbles) == 1:
        return first
    if any(bubble.target is not first.target for bubble in bubbles):
        return InvalidUpdateError(
            "Nodes of one superstep returned Commands for different parent graphs: "
            f"{', '.join(repr(each.graph) for bubble in bubbles for each in _listed(bubble.command))}. "
            "A graph can leave for one of them only: return Commands for the same one."
        )
    commands = [command for each in bubbles for command in _listed(each.command)]
    return ParentCommand(commands, target=first.target)


def _listed(command: Any) -> list[Command[Any]]:
    return command if isinstance(command, list) else [command]


def joined_departures(left: Sequence[Left]) -> BaseException:
    """Return the commands of all tasks that left as one ParentCommand, in the order of their paths."""
    ordered = sorted(left, key=lambda outcome: outcome.task.path)
    return joined([outcome.command for outcome in ordered])
