"""Commands as inputs: their writes are kept beside a checkpoint, and merged whenever that is read.

A command makes no checkpoint of its own. So the tasks that the thread has left to do keep their ids, and
results that are stored under these ids stay valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final

from perdure.checkpoint.base import PendingWrite
from perdure.constants import INPUT, MISSING, PULL, TASKS, branch_channel
from perdure.data import Command
from perdure.errors import EmptyInputError, InvalidUpdateError, NoCheckpointerError
from perdure.pregel.plan.plan import Calling, NodeSpec, Plan
from perdure.pregel.step.apply import apply, release
from perdure.pregel.step.outcome import Finished
from perdure.pregel.step.prepare import fired_anywhere
from perdure.pregel.step.state import ThreadState
from perdure.pregel.step.task import Superstep, Task, Writes
from perdure.pregel.step.writes import writes_of

INPUT_SPEC: Final = NodeSpec(name=INPUT, action=lambda given: given, calling=Calling.INPUT, triggers=())
"""The virtual node to which the writes of inputs are attributed."""

_PREFIX: Final = "00000000-0000-0000-0000-"
"""The beginning of the task ids under which commands are kept. The rest identifies the run, so that a run
that is continued after a crash does not keep its command twice."""


def check_command(plan: Plan, command: Command, *, stored: bool) -> None:
    """Refuse a command that cannot be an input of this graph, before anything is touched."""
    if command.graph is not None:
        raise InvalidUpdateError(
            f"There is no parent graph: the input of graph {plan.name!r} is a Command with "
            f"graph={command.graph!r}, which only a node of a child graph can return. Leave `graph` out."
        )
    if command.resume is not MISSING and not stored:
        raise NoCheckpointerError(
            f"Cannot use Command(resume=...) without checkpointer: graph {plan.name!r} stores nothing that "
            "could be resumed. Compile it with compile(checkpointer=...)."
        )
    if command.resume is MISSING and command.update is None and not command.goto:
        raise EmptyInputError(
            f"Received empty Command input: the Command for graph {plan.name!r} has neither update, resume "
            "nor goto. Pass None to continue the thread."
        )
    command_writes(plan, command)


def recorded(given: Any) -> Any:
    """Return an input as a claim records it: a Command as a tuple, any other input as it is.

    No other input is a tuple, so `given` can tell them apart.
    """
    if not isinstance(given, Command):
        return given
    parts = (given.update, given.goto)
    return parts if given.resume is MISSING else (*parts, given.resume)


def given(recorded: Any) -> Any:
    """Restore an input from its record."""
    if not isinstance(recorded, tuple):
        return recorded
    update, goto, *resume = recorded
    return Command(update=update, goto=goto, resume=resume[0] if resume else MISSING)


def only_resumes(given: Any) -> bool:
    """Return True if an input has no update and no destination, so that it can only continue a thread."""
    return given is None or (isinstance(given, Command) and given.update is None and not given.goto)


def command_writes(plan: Plan, command: Command) -> Writes:
    """Return the writes of a command, as if a node had returned it."""
    return writes_of(plan, INPUT_SPEC, Command(update=command.update, goto=command.goto))


def input_task(superstep: Superstep) -> Task:
    """Return the virtual task to which an input's writes belong."""
    return Task(INPUT_SPEC, (PULL, INPUT), (), None, superstep)


def command_id(run_id: str) -> str:
    """Return the task id under which a run keeps its command."""
    return _PREFIX + blake2b(run_id.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def kept_commands(pending: Sequence[PendingWrite]) -> dict[str, Writes]:
    """Return the writes of the commands that are kept beside a checkpoint, by task id, oldest first."""
    kept: dict[str, Writes] = {}
    for task_id, channel, value in pending:
        if task_id.startswith(_PREFIX):
            kept.setdefault(task_id, []).append((channel, value))
    return kept


def apply_command(
    state: ThreadState, superstep: Superstep, writes: Writes, checkpoint_id: str
) -> tuple[Finished, set[str]]:
    """Merge the writes of one command into the state. Tasks that the thread had left to do stay due.

    Several commands are merged one by one, because each may write to a key that takes one value.
    A goto to a node that is due anyway is dropped: the node's task keeps its triggers and thereby its id,
    and a result that is stored under this id stays valid.

    Returns:
        The merged writes as an outcome, and the channels that changed.
    """
    due = {branch_channel(name) for name in fired_anywhere(state.plan, state)}
    merged = [write for write in _known(state.plan, writes) if write[0] not in due]
    if any(name == TASKS for name, _ in merged) and TASKS in state.transient:
        merged[:0] = [(TASKS, sent) for sent in state.channels[TASKS].get()]
    finished = Finished(input_task(superstep), merged, len(merged))
    if not merged:
        return finished, set()
    changed = apply(state, [finished], checkpoint_id, real=False).changed
    if state.plan.deferred and TASKS not in state.transient and not fired_anywhere(state.plan, state):
        changed |= release(state, checkpoint_id)
    return finished, changed


def _known(plan: Plan, writes: Writes) -> Writes:
    """Return the writes without those to channels and nodes that the graph no longer has."""
    known: Writes = []
    for name, value in writes:
        if name == TASKS:
            sends = value if isinstance(value, list) else [value]
            known.append((name, [send for send in sends if send.node in plan.nodes]))
        elif name in plan.channels:
            known.append((name, value))
    return known
