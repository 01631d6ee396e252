"""The options of a call, completed by the graph's defaults and by the surrounding run."""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Protocol, get_args

from perdure.aio.home import loop_here
from perdure.cache.base import BaseCache
from perdure.checkpoint.base import BaseCheckpointSaver, LeasedSaver
from perdure.clock import Clock
from perdure.config import Config, RunSettings, merge_configs, parse_config, passed_on
from perdure.data import Durability
from perdure.errors import GraphValidationError, PerdureWarning
from perdure.pregel.plan.limits import seconds
from perdure.pregel.plan.names import names_of, nearest
from perdure.pregel.plan.plan import Plan
from perdure.pregel.run.request import RunRequest
from perdure.pregel.work.running import RunningTask, Scope, running_task

_DURABILITIES: Final = get_args(Durability)


class Defaults(Protocol):
    """The part of a graph that completes the options of a call."""

    @property
    def plan(self) -> Plan: ...

    checkpointer: BaseCheckpointSaver | bool | None
    store: Any
    cache: BaseCache | None
    debug: bool
    step_timeout: float | timedelta | None
    config: Mapping[str, Any] | None


def durability_of(graph: Defaults, chosen: Durability | None) -> Durability:
    """Return the durability of a call; warn where it has no effect."""
    if chosen is None:
        return "async"
    if chosen not in _DURABILITIES:
        raise GraphValidationError(f"Unknown durability {chosen!r}. Known: {', '.join(_DURABILITIES)}.")
    if running_task() is None and not isinstance(graph.checkpointer, BaseCheckpointSaver):
        warnings.warn(
            "`durability` has no effect when no checkpointer is present.", PerdureWarning, stacklevel=4
        )
    return chosen


def output_keys_of(plan: Plan, chosen: str | Sequence[str] | None) -> str | tuple[str, ...]:
    """Return the output keys of a call. Raises GraphValidationError for one that the state does not have."""
    if chosen is None:
        return plan.output_keys
    for key in names_of(chosen):
        if key not in plan.state_keys:
            raise GraphValidationError(f"Key {key!r} not in channels." + nearest(str(key), plan.state_keys))
    return chosen if isinstance(chosen, str) else tuple(chosen)


def scope_of(graph: Defaults, config: Config | None, context: Any, clock: Clock, debug: bool | None) -> Scope:
    """Return the scope of a call. Below a node, the surrounding run fills in what the call leaves out."""
    parent = running_task()
    above = None if parent is None else parent.scope
    sink = None if above is None else above.sink
    if sink is not None and parent is not None:
        sink = sink.below(parent.task)
    make = graph.plan.context
    if context is None:
        context = None if above is None else above.context
    elif make is not None:
        context = make(context)
    return Scope(
        settings=settings_of(graph, config, parent),
        clock=clock if above is None else above.clock,
        loop=loop_here(),
        context=context,
        store=graph.store if above is None or above.store is None else above.store,
        cache=graph.cache if above is None or above.cache is None else above.cache,
        sink=sink,
        above=parent,
        debug=debug if debug is not None else graph.debug or (above is not None and above.debug),
        random=random.random if above is None else above.random,
        watch=None if parent is None else parent.watch,
        step_timeout=None if graph.step_timeout is None else seconds(graph.step_timeout, "step_timeout"),
    )


def settings_of(graph: Defaults, config: Config | None, parent: RunningTask | None) -> RunSettings:
    """Return the settings of a call: its own, then the graph's bound ones, then the surrounding run's."""
    if parent is not None and config:
        config = passed_on(config, parent.scope.settings, parent.task.namespace.text)
    if graph.config:
        config = merge_configs(graph.config, config)
    return parse_config(config) if parent is None else parse_config(config, parent.settings_below())


async def resumed_request(request: RunRequest) -> RunRequest:
    """Turn a request to continue a thread into one to continue the orphan that its last run is, if it is one.

    Otherwise the input of an orphan that has stored nothing yet would be lost.
    """
    saver, settings = request.saver, request.settings
    asked = request.input is None and settings.checkpoint_id is None and request.scope.above is None
    if not asked or settings.thread_id is None or not isinstance(saver, LeasedSaver):
        return request
    orphans = await saver.aorphans(graph=request.plan.name, thread_id=settings.thread_id)
    return request.continuing(orphans[0]) if orphans else request
