"""What can be added as a node, each made into something that is called with the node's input."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from perdure.aio.gathering import all_of
from perdure.aio.threads import in_thread
from perdure.constants import ROOT
from perdure.graph.actions.annotations import destinations_of, input_schema_of
from perdure.graph.actions.injection import injections_of
from perdure.graph.actions.signatures import check_action
from perdure.pregel.graph import Pregel
from perdure.pregel.plan.callables import calling_of
from perdure.pregel.plan.plan import Calling, Injected
from perdure.pregel.plan.runnables import invocation_of, is_runnable
from perdure.pregel.work.injection import injected
from perdure.pregel.work.running import running_task


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What a node does.

    Attributes:
        call: called with the input, and with the parameters that `injects` names.
        schema, destinations: what its annotations declare; None where they declare nothing.
        subgraph: the compiled graph that it is, if it is one.
    """

    call: Callable[..., Any]
    calling: Calling
    injects: tuple[tuple[str, Injected], ...] = ()
    schema: Any = None
    destinations: tuple[str, ...] | None = None
    subgraph: Pregel | None = None


def action_of(name: str, given: Any) -> Action:
    """The action of node `name`: a function, a runnable, a compiled graph, or a dict of any of these.

    Raises GraphValidationError for anything else, and NodeSignatureError for a function that cannot be
    called with its input and what it may ask for by name.
    """
    if isinstance(given, Pregel):
        return Action(call=given.ainvoke, calling=Calling.COROUTINE, subgraph=given)
    if isinstance(given, Mapping):
        members = {key: action_of(name, member) for key, member in given.items()}
        return Action(call=partial(_run_members, members), calling=Calling.COROUTINE)
    if is_runnable(given):
        call, calling, injects = invocation_of(given)
        return Action(call=call, calling=calling, injects=injects)
    if not callable(given):
        check_action(name, given)
    injects = injections_of(given)
    check_action(name, given, injects)
    return Action(
        call=given,
        calling=calling_of(given),
        injects=injects,
        schema=input_schema_of(given),
        destinations=destinations_of(given),
    )


async def _run_members(members: Mapping[str, Action], given: Any) -> dict[str, Any]:
    """Run every member on the same input, side by side; the result holds theirs, by key."""
    results = await all_of([partial(_run, member, given) for member in members.values()])
    return dict(zip(members, results, strict=True))


async def _run(action: Action, given: Any) -> Any:
    call, task = action.call, running_task()
    if action.injects and task is not None:
        call = partial(call, **injected(task, action.injects))
    return await (call(given) if action.calling is Calling.COROUTINE else in_thread(call, given))


def run_below(child: Pregel, keys: Collection[str]) -> Callable[[Any], Any]:
    """The action of a node that is a compiled graph.

    Args:
        keys: those of the state around it. Of these the child is given what it takes as its input, and
            returns what it has as its output; of a state that is one value, all of it.
    """
    taken = child.plan.input_keys
    output = child.plan.output_keys
    whole = isinstance(output, str) or ROOT in keys
    returned = output if whole else tuple(key for key in output if key in keys)

    async def run(given: Any) -> Any:
        if isinstance(given, Mapping) and ROOT not in taken:
            given = {key: value for key, value in given.items() if key in taken}
        return await child.ainvoke(given, output_keys=returned)

    return run
