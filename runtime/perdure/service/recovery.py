"""Recovery: finding the runs whose process is gone, and continuing them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anyio

from perdure.checkpoint.base import BaseCheckpointSaver, LeasedSaver, Orphan
from perdure.constants import DEFAULT_GRAPH_NAME
from perdure.errors import OrphanTakenError, RecoveryRefusedError
from perdure.pregel.graph import Pregel


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """An orphaned run that was continued here.

    Attributes:
        output: what the run returned; None if it failed.
        error: what it failed with.
    """

    thread_id: str
    run_id: str
    output: Any = None
    error: Exception | None = None


async def recover(
    graph: Pregel,
    *,
    context: Callable[[Orphan], Any] | None = None,
    limit: int = 100,
    max_concurrency: int = 10,
) -> list[Recovered]:
    """Continue the runs of `graph` whose lease has run out, and wait until they end.

    The runs of a graph are those recorded under its name, `compile(name=...)`: give it one that
    other graphs on the same database do not have. A run goes on from its last stored superstep; one
    that had stored none starts from its recorded input. Runs that another process claims first are
    left to it. Orphans of several processes, and several recoverers at once, are fine.

    What such a run was called with as `config` is recorded, but for objects that are not plain JSON in
    its `configurable`.

    Args:
        context: called for each run, makes the `context` that it goes on with, which is not stored.
        limit: find at most so many.
        max_concurrency: continue at most so many at the same time.

    Raises:
        RecoveryRefusedError: the graph's checkpointer keeps no leases, so a run that is gone cannot
            be told from one that is slow.
    """
    saver = graph.checkpointer
    if not isinstance(saver, BaseCheckpointSaver):
        raise RecoveryRefusedError(
            f"Graph {graph.name!r} has no checkpointer, so nothing of its runs is kept to be recovered."
        )
    if not isinstance(saver, LeasedSaver):
        raise RecoveryRefusedError(
            f"Graph {graph.name!r} has {type(saver).__name__} as its checkpointer, which keeps no leases. "
            "Use one that does, such as PostgresSaver."
        )
    recovered: list[Recovered] = []
    orphans = await saver.aorphans(graph=graph.name, limit=limit)
    waiting = iter([orphan for orphan in orphans if _is_ours(graph, orphan)])

    async def work() -> None:
        for orphan in waiting:
            outcome = await _continue(graph, orphan, context)
            if outcome is not None:
                recovered.append(outcome)

    async with anyio.create_task_group() as group:
        for _ in range(max_concurrency):
            group.start_soon(work)
    return recovered


def _is_ours(graph: Pregel, orphan: Orphan) -> bool:
    """Return whether a graph may continue a run: unnamed graphs share a name, so they must look alike too."""
    return graph.name != DEFAULT_GRAPH_NAME or graph.plan.signature == orphan.signature


async def _continue(
    graph: Pregel, orphan: Orphan, context: Callable[[Orphan], Any] | None
) -> Recovered | None:
    """Continue one run; None if another process was faster."""
    try:
        output = await graph.acontinue(orphan, context=None if context is None else context(orphan))
    except OrphanTakenError:
        return None
    except Exception as error:  # it is the run's own, recorded with it, and must not stop the others
        return Recovered(thread_id=orphan.thread_id, run_id=orphan.run_id, error=error)
    return Recovered(thread_id=orphan.thread_id, run_id=orphan.run_id, output=output)
