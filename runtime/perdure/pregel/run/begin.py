"""The beginning of a run: its input is accepted, its thread claimed, its head read."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from perdure.checkpoint.base import BaseCheckpointSaver, CheckpointTuple, LeasedSaver
from perdure.clock import IdSource, LocalIds
from perdure.config import require_thread
from perdure.constants import START
from perdure.data import Command
from perdure.errors import EmptyInputError, GraphValidationError, ThreadBusyError
from perdure.pregel.lease.claim import claim_thread, give_back, warn_unfenced
from perdure.pregel.lease.renewal import hold, renew, send_early
from perdure.pregel.lease.session import Session, open_session
from perdure.pregel.plan.objects import mapping_of
from perdure.pregel.run.loop import Loop
from perdure.pregel.run.opening import Opened, child, fresh, id_of, opened, orphaned
from perdure.pregel.run.request import RunRequest
from perdure.pregel.run.run import Run
from perdure.pregel.step.commands import check_command, given, only_resumes
from perdure.pregel.step.failures import add_note
from perdure.pregel.step.namespace import ROOT_NAMESPACE, Namespace
from perdure.pregel.step.output import output_of
from perdure.pregel.step.writes import refuse_unknown_keys
from perdure.pregel.work.running import RunningTask


async def run_graph(request: RunRequest) -> Any:
    """Run a graph from its opening to its end and return the output."""
    request = _accepted(request)
    parent = request.scope.above
    if parent is not None and parent.watch is not None:
        parent.watch.admit(request.plan.name)
    session = None if parent is None or request.saver is False else parent.scope.session
    if parent is not None and session is not None:
        if request.settings.thread_id is None:
            return await _run_child(request, parent, session)
        _refuse_own_thread(request, parent, session)
    saver = session.saver if session is not None and request.saver is None else request.saver
    if isinstance(saver, BaseCheckpointSaver):
        request = _at_root(request)
        return await _run_root(request, saver, require_thread(request.settings))
    _require_input(request)
    namespace = ROOT_NAMESPACE
    if parent is not None:
        request = request.called(parent.children)
        namespace = parent.child_namespace()
    run = _run(request, None, LocalIds(), namespace)
    return await Loop(run, await fresh(run, request.input)).run_to_end()


def _run(
    request: RunRequest,
    session: Session | None,
    ids: IdSource,
    namespace: Namespace = ROOT_NAMESPACE,
    *,
    root: bool = True,
) -> Run:
    scope = request.scope
    return Run(
        plan=request.plan,
        scope=scope if scope.session is session else scope._replace(session=session),
        ids=ids,
        namespace=namespace,
        output=output_of(request.output_keys),
        breakpoints=request.breakpoints,
        root=root,
    )


def _at_root(request: RunRequest) -> RunRequest:
    """Return the request for a run with a thread of its own.

    The config may come from the state snapshot of a child graph. Then it means the thread, not the child's
    checkpoint. Below a run that stores nothing, the thread is that of the call's own config.
    """
    settings = request.settings
    if settings.thread_id is None and settings.configurable.get("thread_id") is not None:
        settings = replace(settings, thread_id=str(settings.configurable["thread_id"]))
        request = request.with_settings(settings)
    if not settings.namespace:
        return request
    return request.with_settings(replace(settings, namespace="", checkpoint_id=None))


def _accepted(request: RunRequest) -> RunRequest:
    """Return the request with its input as a mapping of keys.

    An input that the graph cannot take is refused here, before anything is read or claimed.
    """
    asked, plan = request.input, request.plan
    if asked is None:
        return request
    if isinstance(asked, Command):
        stored = request.scope.above is not None or isinstance(request.saver, BaseCheckpointSaver)
        check_command(plan, asked, stored=stored)
        return request
    accepted = mapping_of(plan.name, asked) if plan.accept is None else plan.accept(asked)
    if plan.strict:
        refuse_unknown_keys(plan, accepted)
    return request if accepted is asked else request._replace(input=accepted)


def _require_input(request: RunRequest) -> None:
    if request.input is None:
        raise EmptyInputError(
            f"Received no input for {START}: graph {request.plan.name!r} has nothing stored to resume. "
            "Pass a mapping of state keys ({} for none)."
        )


def _refuse_own_thread(request: RunRequest, parent: RunningTask, session: Session) -> None:
    thread_id = request.settings.thread_id
    if thread_id == session.thread_id and request.saver in (None, session.saver):
        raise ThreadBusyError(
            f"Node {parent.task.name!r} invokes a graph on thread {thread_id!r}, on which it runs itself: "
            "the graph would wait for the node to end. Leave thread_id out to run a child graph, or name "
            "another thread."
        )


# A run with a thread of its own


async def _run_root(request: RunRequest, saver: BaseCheckpointSaver, thread_id: str) -> Any:
    if isinstance(saver, LeasedSaver):
        return await _run_claimed(request, saver, thread_id)
    warn_unfenced(saver)
    address = {"thread_id": thread_id, "checkpoint_ns": "", "checkpoint_id": request.settings.checkpoint_id}
    head = await saver.aget_tuple({"configurable": address})
    session = open_session(saver, thread_id, None, request.durability, request.scope.clock)
    newest = None if head is None else await _newest_id(session)
    return await hold(partial(_open_and_run, request, session, head, newest), partial(send_early, session))


async def _run_claimed(request: RunRequest, saver: LeasedSaver, thread_id: str) -> Any:
    """Claim the thread, and run with its lease renewed. The run's last commit releases the claim."""
    clock = request.scope.clock
    claim = await claim_thread(saver, request.claim(saver, thread_id))
    session = open_session(saver, thread_id, claim.fence, request.durability, clock)
    try:
        return await hold(
            partial(_open_and_run, request, session, claim.head, claim.last_id),
            partial(send_early, session),
            partial(renew, saver, claim.fence, clock, session.line),
        )
    except BaseException as error:
        # The end of the run is the last commit in the line. If the line has failed, the end was not stored,
        # and this process still holds the claim: without a release, the thread would stay busy until the
        # lease runs out.
        if session.line.failure is not None:
            await give_back(session, error)
        raise
    finally:
        saver.forget(claim.fence)  # or the process would go on renewing a lease that nobody needs


async def _open_and_run(
    request: RunRequest, session: Session, head: CheckpointTuple | None, last_id: str | None
) -> Any:
    run = _run(request, session, session.ids)
    try:
        if last_id is not None:
            session.ids.advance_past(last_id)
        beginning = await _opened(request, run, session, head)
    except BaseException as error:
        # No loop has begun that could store the run's end. So a new run gives the thread back here. With an
        # orphan, that would record its end for good: instead its lease runs out, and it stays an orphan.
        if request.orphan is None:
            await give_back(session, error)
        else:
            add_note(
                error,
                f"Run {request.orphan.run_id} could not be continued here. It stays an orphan: another "
                "process, perhaps with other code, can continue it.",
            )
        raise
    return await Loop(run, beginning).run_to_end()


async def _opened(request: RunRequest, run: Run, session: Session, head: CheckpointTuple | None) -> Opened:
    """Open a root run. An orphan that has stored a checkpoint of its own continues without its input."""
    asked, orphan = request.input, request.orphan
    if orphan is not None:
        asked = None if orphan.started else given(session.saver.serde.loads(orphan.input))
    if head is None and only_resumes(asked):
        raise EmptyInputError(
            f"Received no input for {START}: thread {session.thread_id!r} has nothing to resume. "
            "Pass a mapping of state keys ({} for none)."
        )
    below = False
    if (
        head is not None
        and request.checkpoint_id is not None
        and (asked is None or isinstance(asked, Command))
    ):
        below = await _newest_id(session) != id_of(head)
    if orphan is not None:
        return await orphaned(run, head, asked, below=below, run_id=orphan.run_id)
    return await opened(run, head, asked, below=below)


async def _newest_id(session: Session) -> str | None:
    newest = await session.saver.aget_tuple({"configurable": {"thread_id": session.thread_id}})
    return None if newest is None else id_of(newest)


# A run below a node of another


async def _run_child(request: RunRequest, parent: RunningTask, session: Session) -> Any:
    """Run a graph that a node invokes: on the node's thread and claim, in a namespace below its task."""
    if request.breakpoints is not None:
        raise GraphValidationError(
            f"Graph {request.plan.name!r} runs below node {parent.task.name!r} and has breakpoints, which "
            "stop only runs that a caller started. Set them on the parent graph, before or after that node."
        )
    request = request.called(parent.children)
    namespace = parent.child_namespace()
    head = None
    if parent.again:
        await session.line.settle()  # or the head could be older than what the last attempt has stored
        address = {"thread_id": session.thread_id, "checkpoint_ns": namespace.text}
        head = await session.saver.aget_tuple({"configurable": address})
    if head is None:
        _require_input(request)
    run = _run(request, session, session.ids, namespace, root=False)
    return await Loop(run, await child(run, request.input, head)).run_to_end()
