"""How a run begins: its thread claimed, its head read, its input turned into the first superstep."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakSet

import uuid6

from perdure import faults
from perdure.aio.cancellation import clean_up
from perdure.checkpoint.base import (
    BaseCheckpointSaver,
    CheckpointTuple,
    Claim,
    ClaimRequest,
    Fence,
    LeasedSaver,
    RunEnd,
)
from perdure.checkpoint.serde.json import exact_json
from perdure.clock import IdSource, LocalIds
from perdure.config import ADDRESS, RunSettings, require_thread
from perdure.constants import START
from perdure.data import Command
from perdure.errors import (
    EmptyInputError,
    GraphValidationError,
    OrphanTakenError,
    StaleRunError,
    ThreadBusyError,
    UnfencedSaverWarning,
    UnserializableValueError,
)
from perdure.pregel.lease.renewal import Wake, hold, renew, send_early
from perdure.pregel.lease.session import CommitLine, Session, Superstep
from perdure.pregel.run.loop import CLEANUP_SECONDS, Loop
from perdure.pregel.run.opening import id_of, resume, start, start_with, stored_loop
from perdure.pregel.run.request import RunRequest
from perdure.pregel.step.commands import check_command, given, only_resumes, recorded
from perdure.pregel.step.failures import add_note
from perdure.pregel.step.objects import mapping_of
from perdure.pregel.step.state import ThreadState
from perdure.pregel.step.task import Task
from perdure.pregel.step.writes import refuse_unknown_keys


async def run_graph(request: RunRequest) -> Any:
    """Run a graph from its opening to its end and return the output."""
    request = _accepted(request)
    parent: Task | None = request.scope.above
    if parent is not None and parent.watch is not None:
        parent.watch.admit(request.plan.name)
    session = None if parent is None or request.saver is False else parent.superstep.session
    if parent is not None and session is not None:
        if request.settings.thread_id is None:
            return await _run_child(request, parent, session)
        _refuse_own_thread(request, parent, session)
    saver = session.saver if session is not None and request.saver is None else request.saver
    if saver is not None and isinstance(saver, BaseCheckpointSaver):
        request = _at_root(request)
        return await _run_root(request, saver, require_thread(request.settings))
    _require_input(request)
    namespace = "" if parent is None else parent.child_namespace()
    loop = Loop(request, ThreadState(request.plan), LocalIds(), namespace)
    await _begin(loop, request.input)
    return await loop.run()


async def _begin(loop: Loop, given: Any) -> None:
    """Start on what a caller gave, where nothing is stored."""
    if isinstance(given, Command):
        await start_with(loop, given)
    else:
        await start(loop, given)


def _at_root(request: RunRequest) -> RunRequest:
    """A config that came from a child's snapshot means its thread, not the child's checkpoint.

    Below a run that stores nothing, the thread is the one that this was called with.
    """
    settings = request.settings
    if settings.thread_id is None and settings.configurable.get("thread_id") is not None:
        settings = replace(settings, thread_id=str(settings.configurable["thread_id"]))
        request = request.with_settings(settings)
    if not settings.namespace:
        return request
    return request.with_settings(replace(settings, namespace="", checkpoint_id=None))


def _accepted(request: RunRequest) -> RunRequest:
    """The request with its input as a mapping of keys; refuse, before anything is touched, what is none."""
    given, plan = request.input, request.plan
    if given is None:
        return request
    if isinstance(given, Command):
        _check_command(request, given)
        return request
    accepted = mapping_of(plan.name, given) if plan.accept is None else plan.accept(given)
    if plan.strict:
        refuse_unknown_keys(plan, accepted)
    return request if accepted is given else replace(request, input=accepted)


def _check_command(request: RunRequest, command: Command) -> None:
    stored = request.scope.above is not None or isinstance(request.saver, BaseCheckpointSaver)
    superstep = Superstep("", "", 0, request.scope, None, request.settings.recursion_limit)
    check_command(request.plan, command, superstep, stored=stored)


def _require_input(request: RunRequest) -> None:
    if request.input is None:
        raise EmptyInputError(
            f"Received no input for {START}: graph {request.plan.name!r} has nothing stored here to resume. "
            "Pass a mapping of state keys; {} is one."
        )


def _refuse_own_thread(request: RunRequest, parent: Task, session: Session) -> None:
    thread_id = request.settings.thread_id
    if thread_id == session.thread_id and request.saver in (None, session.saver):
        raise ThreadBusyError(
            f"Node {parent.name!r} invokes a graph on thread {thread_id!r}, on which it runs itself: it "
            "would wait for itself. Leave thread_id out to run the graph below this node, or "
            "name another thread."
        )


# A run with a thread of its own


async def _run_root(request: RunRequest, saver: BaseCheckpointSaver, thread_id: str) -> Any:
    if isinstance(saver, LeasedSaver):
        return await _run_claimed(request, saver, thread_id)
    _warn_unfenced(saver)
    head = await saver.aget_tuple({"configurable": _address(request.settings, thread_id)})
    session, wake = _session(request, saver, thread_id, None)
    newest = None if head is None else await _newest_id(session)
    body = partial(_open_and_run, request, session, head, newest)
    return await hold(body, partial(send_early, session.line, wake))


_unfenced: WeakSet[BaseCheckpointSaver] = WeakSet()


def _warn_unfenced(saver: BaseCheckpointSaver) -> None:
    """Once for each saver."""
    if saver in _unfenced:
        return
    _unfenced.add(saver)
    warnings.warn(
        f"{type(saver).__name__} has no leases: nothing keeps two runs on one thread apart, and runs that "
        "crash are not found by recover().",
        UnfencedSaverWarning,
        stacklevel=3,
    )


async def _run_claimed(request: RunRequest, saver: LeasedSaver, thread_id: str) -> Any:
    claim = await _claim(request, saver, thread_id)
    session, wake = _session(request, saver, thread_id, claim.fence)
    try:
        return await hold(
            partial(_open_and_run, request, session, claim.head, claim.last_id),
            partial(send_early, session.line, wake),
            partial(renew, saver, claim.fence, request.clock, session.line),
        )
    except BaseException as error:
        if session.line.failure is not None:  # so the end that was in it was not stored either
            await _give_back(session, error)
        raise
    finally:
        saver.forget(claim.fence)


async def _claim(request: RunRequest, saver: LeasedSaver, thread_id: str) -> Claim:
    asked = _claim_request(request, saver, thread_id)
    if faults.hook is not None:
        await faults.reach("claim.send", thread_id)
    try:
        claim = await saver.aclaim(asked)
    except (StaleRunError, ThreadBusyError) as error:
        if request.orphan is None:
            raise
        raise OrphanTakenError(
            f"Run {asked.run_id!r} of thread {thread_id!r} is no orphan any more: it has ended, or another "
            "process continues it. Leave it alone."
        ) from error
    if faults.hook is not None:
        await faults.reach("claim.acknowledged", thread_id)
    return claim


def _claim_request(request: RunRequest, saver: LeasedSaver, thread_id: str) -> ClaimRequest:
    settings, orphan = request.settings, request.orphan
    try:
        recorded_input = saver.serde.dumps(recorded(request.input))
    except UnserializableValueError as error:
        raise UnserializableValueError(f"The input cannot be recorded: {error}") from error
    return ClaimRequest(
        thread_id=thread_id,
        run_id=orphan.run_id if orphan is not None else settings.run_id or str(uuid6.uuid7()),
        graph=request.plan.name,
        signature=request.plan.signature,
        input=recorded_input,
        config=_recorded_config(request),
        durability=request.durability,
        checkpoint_id=_address_of(request),
        successor_of=orphan.epoch if orphan is not None else None,
    )


def _address_of(request: RunRequest) -> str | None:
    """The checkpoint to begin at, None for the newest: where a successor finds what the run has stored."""
    started = request.orphan is not None and request.orphan.started
    return None if started else request.settings.checkpoint_id


def _recorded_config(request: RunRequest) -> dict[str, Any]:
    """What a successor must be called with, beside thread and input."""
    settings, stops = request.settings, request.breakpoints
    return {
        "interrupt_before": [] if stops is None else sorted(stops.before),
        "interrupt_after": [] if stops is None else sorted(stops.after),
        "configurable": {**_storable(settings.configurable), "checkpoint_id": settings.checkpoint_id},
        "recursion_limit": settings.recursion_limit,
        "max_concurrency": settings.max_concurrency,
        "metadata": dict(settings.metadata),
        "tags": list(settings.tags),
    }


def _storable(configurable: Mapping[str, Any]) -> dict[str, Any]:
    """What of a config another process can be given: no addresses, and no objects of this one."""
    return {
        key: value
        for key, value in configurable.items()
        if key not in ADDRESS and (type(value) is str or exact_json(value) is not None)
    }


def _session(
    request: RunRequest, saver: BaseCheckpointSaver, thread_id: str, fence: Fence | None
) -> tuple[Session, Wake]:
    wake = Wake()
    session = Session(
        saver=saver,
        thread_id=thread_id,
        fence=fence,
        durability=request.durability,
        clock=request.clock,
        ids=IdSource(request.clock),
        line=CommitLine(saver),
        wake=wake.ring,
    )
    return session, wake


async def _open_and_run(
    request: RunRequest, session: Session, head: CheckpointTuple | None, last_id: str | None
) -> Any:
    try:
        if last_id is not None:
            session.ids.advance_past(last_id)
        loop = await _open(request, session, head)
    except BaseException as error:
        if request.orphan is None:
            await _give_back(session, error)
        else:
            add_note(
                error,
                f"Run {request.orphan.run_id} could not be continued here. It stays an orphan, which another "
                "process, with other code perhaps, can continue.",
            )
        raise
    return await loop.run()


async def _give_back(session: Session, error: BaseException) -> None:
    """Release a claim whose end no commit has stored."""
    if session.fence is None or not isinstance(session.saver, LeasedSaver):
        return
    if isinstance(session.line.failure, StaleRunError):
        return
    status = RunEnd(status="error" if isinstance(error, Exception) else "cancelled", error=repr(error))
    try:
        await clean_up(partial(session.saver.arelease, session.fence, status), CLEANUP_SECONDS)
    except Exception as failure:
        add_note(error, f"The thread could not be given back: {failure!r}")


async def _open(request: RunRequest, session: Session, head: CheckpointTuple | None) -> Loop:
    asked = request.input
    if request.orphan is not None:
        recorded_input = session.saver.serde.loads(request.orphan.input)
        asked = None if request.orphan.started else given(recorded_input)
    if head is None and only_resumes(asked):
        raise EmptyInputError(
            f"Received no input for {START}: thread {session.thread_id!r} has nothing to resume. "
            "Pass a mapping of state keys; {} is one."
        )
    loop = stored_loop(request, session, head)
    if head is None:
        await _begin(loop, asked)
    elif asked is None or isinstance(asked, Command):
        below = _address_of(request) is not None and await _is_below_head(session, head)
        await resume(loop, head, fork=below, command=asked, approved=_is_approved(request, head))
    else:
        await start(loop, asked, head)
    return loop


def _is_approved(request: RunRequest, head: CheckpointTuple) -> bool:
    """Whether going on means to pass the breakpoint at which the thread stopped.

    What an orphan has stored itself, it has not stopped at yet; but its fork is where it was told to go on.
    """
    if request.orphan is None or head.metadata.get("source") == "fork":
        return True
    return head.metadata.get("run_id") != request.orphan.run_id


async def _is_below_head(session: Session, head: CheckpointTuple) -> bool:
    return await _newest_id(session) != id_of(head)


async def _newest_id(session: Session) -> str | None:
    newest = await session.saver.aget_tuple({"configurable": {"thread_id": session.thread_id}})
    return None if newest is None else id_of(newest)


# A run below a node of another


async def _run_child(request: RunRequest, parent: Task, session: Session) -> Any:
    """Run a graph that a node invokes: on its thread, under its claim, in a namespace of the task's own.

    If the task ran before, in an attempt that failed or a process that is gone, the child continues
    what is stored of it.
    """
    if request.breakpoints is not None:
        raise GraphValidationError(
            f"Graph {request.plan.name!r} runs below node {parent.name!r} and has breakpoints, which stop "
            "only runs that a caller started. Set them on the outer graph, before or after that node."
        )
    namespace = parent.child_namespace()
    head = None
    if parent.again:
        await session.line.settle()
        address = {"thread_id": session.thread_id, "checkpoint_ns": namespace}
        head = await session.saver.aget_tuple({"configurable": address})
    loop = stored_loop(request, session, head, parent, namespace)
    if head is not None:  # which holds what this very call wrote, be it a command
        await resume(loop, head)
    else:
        _require_input(request)
        await _begin(loop, request.input)
    return await loop.run()


def _address(settings: RunSettings, thread_id: str) -> dict[str, Any]:
    return {"thread_id": thread_id, "checkpoint_ns": "", "checkpoint_id": settings.checkpoint_id}
