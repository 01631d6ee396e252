"""Commands as inputs: their writes are kept beside a checkpoint, and applied whenever that is read.

So the tasks that the thread had left to do keep their ids, and what of them is stored already stays theirs.
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
"""The pseudo node that inputs are attributed to."""

_PREFIX: Final = "00000000-0000-0000-0000-"
"""Of the task ids under which commands are kept; the rest names the run, so that none is kept twice."""


def check_command(plan: Plan, command: Command, *, stored: bool) -> None:
    """Refuse, before anything is touched, a command that means nothing here."""
    if command.graph is not None:
        raise InvalidUpdateError(
            f"There is no parent graph: a Command with graph={command.graph!r} is for a node of a graph that "
            f"runs below another. Leave `graph` out of an input to graph {plan.name!r}."
        )
    if command.resume is not MISSING and not stored:
        raise NoCheckpointerError(
            f"Cannot use Command(resume=...) without checkpointer: graph {plan.name!r} keeps nothing that "
            "could be resumed. Compile it with compile(checkpointer=...)."
        )
    if command.resume is MISSING and command.update is None and not command.goto:
        raise EmptyInputError(
            "Received empty Command input: it has neither update, nor resume, nor goto. To go on with what "
            "the thread has left to do, pass None."
        )
    command_writes(plan, command)


def recorded(given: Any) -> Any:
    """Return an input as a claim records it. Other inputs are mappings, so a Command may be a tuple."""
    if not isinstance(given, Command):
        return given
    parts = (given.update, given.goto)
    return parts if given.resume is MISSING else (*parts, given.resume)


def given(recorded: Any) -> Any:
    """Return an input from its record."""
    if not isinstance(recorded, tuple):
        return recorded
    update, goto, *resume = recorded
    return Command(update=update, goto=goto, resume=resume[0] if resume else MISSING)


def only_resumes(given: Any) -> bool:
    """Return whether an input brings nothing but the wish to go on."""
    return given is None or (isinstance(given, Command) and given.update is None and not given.goto)


def command_writes(plan: Plan, command: Command) -> Writes:
    """Return what a command writes, as if a node had returned it."""
    return writes_of(plan, INPUT_SPEC, Command(update=command.update, goto=command.goto))


def input_task(superstep: Superstep) -> Task:
    """Return the pseudo task that an input's writes belong to."""
    return Task(INPUT_SPEC, (PULL, INPUT), (), None, superstep)


def command_id(run_id: str) -> str:
    """Return the task id under which a run keeps its command."""
    return _PREFIX + blake2b(run_id.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def kept_commands(pending: Sequence[PendingWrite]) -> dict[str, Writes]:
    """Return the writes of the commands kept beside a checkpoint, in their order, by the id of each."""
    kept: dict[str, Writes] = {}
    for task_id, channel, value in pending:
        if task_id.startswith(_PREFIX):
            kept.setdefault(task_id, []).append((channel, value))
    return kept


def apply_command(
    state: ThreadState, superstep: Superstep, writes: Writes, checkpoint_id: str
) -> tuple[Finished, set[str]]:
    """Merge what one command wrote; what the thread had left to do, it still has.

    Several are merged one after the other, as they came: each may write to a key that takes one value.
    To go to a node that is about to run anyway adds nothing: its task stays what it is, and so what of it is
    stored already counts.

    Returns the writes as an outcome, and the channels that changed.
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
    """Return the writes without those to channels and nodes that the graph does not have any more."""
    known: Writes = []
    for name, value in writes:
        if name == TASKS:
            sends = value if isinstance(value, list) else [value]
            known.append((name, [send for send in sends if send.node in plan.nodes]))
        elif name in plan.channels:
            known.append((name, value))
    return known
