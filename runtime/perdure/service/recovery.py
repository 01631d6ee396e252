"""Recovery: runs whose process is gone are found, and continued."""

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
    """An orphan that was continued here.

    Attributes:
        output: the output of the run; None if it failed.
        error: the error that it failed with.
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

    The runs of a graph are those that were recorded under its name, `compile(name=...)`, so give it a name
    that no other graph on the database has. A run goes on from its last stored superstep, or starts from its
    recorded input if none was stored. A run that another process claims first is left to that process. Any
    number of processes may recover at once.

    The `config` of a run was recorded, except for values in its `configurable` that are not plain JSON.

    Args:
        context: called for each run; returns the `context` that it goes on with, which is not stored.
        limit: how many runs to find at most.
        max_concurrency: how many runs to continue at one time.

    Raises:
        RecoveryRefusedError: the graph's checkpointer has no leases, so that a run whose process is gone
            cannot be told from a slow one.
    """
    saver = graph.checkpointer
    if not isinstance(saver, BaseCheckpointSaver):
        raise RecoveryRefusedError(
            f"Graph {graph.name!r} has no checkpointer, so nothing of its runs is stored. Compile it with "
            "one that has leases, such as PostgresSaver."
        )
    if not isinstance(saver, LeasedSaver):
        raise RecoveryRefusedError(
            f"Graph {graph.name!r} has {type(saver).__name__} as its checkpointer, which has no leases. "
            "Use one that has, such as PostgresSaver."
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
    """Return True if a graph may continue a run. Unnamed graphs share a name, so signatures count, too."""
    return graph.name != DEFAULT_GRAPH_NAME or graph.plan.signature == orphan.signature


async def _continue(
    graph: Pregel, orphan: Orphan, context: Callable[[Orphan], Any] | None
) -> Recovered | None:
    """Continue a run; return None if another process was faster."""
    try:
        output = await graph.acontinue(orphan, context=None if context is None else context(orphan))
    except OrphanTakenError:
        return None
    except Exception as error:  # the run's own, which is recorded with it and must not stop other runs
        return Recovered(thread_id=orphan.thread_id, run_id=orphan.run_id, error=error)
    return Recovered(thread_id=orphan.thread_id, run_id=orphan.run_id, output=output)
