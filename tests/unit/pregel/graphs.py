"""Small graphs that many tests run, with their nodes and configs."""

from __future__ import annotations

import operator
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, TypedDict

import anyio
import anyio.lowlevel

from perdure.constants import END, START
from perdure.graph.state import StateGraph
from perdure.pregel.graph import Pregel
from perdure.pregel.plan.plan import Calling, NodeSpec, Policies

Action = Callable[[Any], Awaitable[Any]]


class Log(TypedDict, total=False):
    """A log that every node may append to, and two keys that keep their last value."""

    log: Annotated[list[str], operator.add]
    x: int
    y: Any


def logs(name: str) -> Action:
    """Make a node that appends its name to the log."""

    async def action(state: Any) -> Any:
        return {"log": [name]}

    return action


def returns(value: Any) -> Action:
    """Make a node that always returns `value`."""

    async def action(state: Any) -> Any:
        return value

    return action


def ends(seen: list[Any], end: str = END) -> Callable[[Any], str]:
    """Make a path that appends its input to `seen` and always leads to `end`."""

    def path(state: Any) -> str:
        seen.append(state)
        return end

    return path


def fails(error: BaseException) -> Action:
    """Make a node that raises `error`."""

    async def action(state: Any) -> Any:
        raise error

    return action


class Gate:
    """A node that sets an event when it is entered, and waits until it is opened or cancelled."""

    def __init__(self, result: Any = None) -> None:
        self.entered = anyio.Event()
        self.open = anyio.Event()
        self.stopping = anyio.Event()
        self.cleaned = anyio.Event()
        self.cancelled = 0
        self.ended = 0
        self.result = result

    async def __call__(self, state: Any) -> Any:
        self.entered.set()
        try:
            await self.open.wait()
            self.ended += 1
        except BaseException:
            self.cancelled += 1
            self.stopping.set()
            raise
        finally:
            with anyio.CancelScope(shield=True):
                for _ in range(3):
                    await anyio.lowlevel.checkpoint()
            self.cleaned.set()
        return self.result


class Runs:
    """A counter of the bodies that began, by node."""

    def __init__(self) -> None:
        self.of: dict[str, int] = {}

    def counted(self, name: str, action: Action | None = None) -> Action:
        inner = action or logs(name)

        async def body(state: Any) -> Any:
            self.of[name] = self.of.get(name, 0) + 1
            return await inner(state)

        return body


def chain(names: Sequence[str], actions: Mapping[str, Action] | None = None) -> StateGraph:
    """Build a chain of the named nodes. A node without an action appends its name to the log."""
    builder = StateGraph(Log)
    for before, name in zip((START, *names), names, strict=False):
        builder.add_node(name, (actions or {}).get(name) or logs(name))
        builder.add_edge(before, name)
    return builder


def fan(names: Sequence[str], actions: Mapping[str, Action] | None = None) -> StateGraph:
    """Build a graph that runs the named nodes side by side in its first superstep."""
    builder = StateGraph(Log)
    for name in names:
        builder.add_node(name, (actions or {}).get(name) or logs(name))
        builder.add_edge(START, name)
    return builder


def thread(thread_id: str = "t", **more: Any) -> dict[str, Any]:
    """Return the config for a thread."""
    return {"configurable": {"thread_id": thread_id}, **more}


def with_policies(
    graph: Pregel,
    policies: Mapping[str, Policies],
    handlers: Mapping[str, Callable[..., Awaitable[Any]]] | None = None,
) -> Pregel:
    """Build the graph with policies for some nodes, and with error handlers, which no edge starts."""
    nodes = {
        name: replace(spec, policies=policies.get(name, spec.policies))
        for name, spec in graph.plan.nodes.items()
    }
    for name, action in (handlers or {}).items():
        nodes[name] = NodeSpec(
            name=name,
            action=action,
            calling=Calling.COROUTINE,
            triggers=(),
            injects=(("error", "error"),),
            policies=policies.get(name),
        )
    return Pregel.from_plan(
        replace(graph.plan, nodes=nodes), checkpointer=graph.checkpointer, clock=graph._clock
    )


async def settle(rounds: int = 40) -> None:
    """Let all tasks of the loop run until they wait."""
    for _ in range(rounds):
        await anyio.lowlevel.checkpoint()
