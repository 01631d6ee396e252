"""Actions: functions, runnables, compiled graphs and dicts of these, each made into one function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from perdure.aio.gathering import all_of
from perdure.aio.threads import in_thread
from perdure.graph.actions.annotations import destinations_of, input_schema_of
from perdure.graph.actions.injection import injections_of
from perdure.graph.actions.signatures import check_action
from perdure.pregel.graph import Pregel
from perdure.pregel.plan.callables import calling_of
from perdure.pregel.plan.plan import Calling, Injections
from perdure.pregel.plan.runnables import invocation_of, is_runnable
from perdure.pregel.work.injection import injected
from perdure.pregel.work.running import running_task


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAction:
    """An action, made ready to be called.

    Attributes:
        call: a function of the input and of the parameters that `injects` names.
        schema: the schema that its first parameter is annotated with, if there is one.
        destinations: the nodes that its return annotation declares, if it does.
        subgraph: the compiled graph that it is, if it is one.
    """

    call: Callable[..., Any]
    calling: Calling
    injects: Injections = ()
    schema: object = None
    destinations: tuple[str, ...] | None = None
    subgraph: Pregel | None = None


def action_of(name: str, given: Any) -> NodeAction:
    """Make the action of node `name` ready: a function, a runnable, a compiled graph, or a dict of these.

    Raises:
        GraphValidationError: it is none of these.
        NodeSignatureError: it cannot be called with its input and the parameters that it may ask for.
    """
    if isinstance(given, Pregel):
        return NodeAction(call=given.ainvoke, calling=Calling.COROUTINE, subgraph=given)
    if isinstance(given, Mapping):
        members = {key: action_of(name, member) for key, member in given.items()}
        return NodeAction(call=partial(_run_members, members), calling=Calling.COROUTINE)
    if is_runnable(given):
        call, calling, injects = invocation_of(given)
        return NodeAction(call=call, calling=calling, injects=injects)
    if not callable(given):
        check_action(name, given)
    injects = injections_of(given)
    check_action(name, given, injects)
    return NodeAction(
        call=given,
        calling=calling_of(given),
        injects=injects,
        schema=input_schema_of(given),
        destinations=destinations_of(given),
    )


async def _run_members(members: Mapping[str, NodeAction], given: Any) -> dict[str, Any]:
    """Run every member on the same input, side by side, and return their results by key."""
    results = await all_of([partial(_run, member, given) for member in members.values()])
    return dict(zip(members, results, strict=True))


async def _run(action: NodeAction, given: Any) -> Any:
    call, task = action.call, running_task()
    if action.injects and task is not None:
        call = partial(call, **injected(task, action.injects))
    return await (call(given) if action.calling is Calling.COROUTINE else in_thread(call, given))
