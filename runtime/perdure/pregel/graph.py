"""Pregel: what can be done with a compiled graph."""

from __future__ import annotations

import random
import warnings
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, get_args

from perdure.aio.gathering import all_of
from perdure.aio.portal import loop_here
from perdure.checkpoint.base import BaseCheckpointSaver, LeasedSaver, Orphan
from perdure.config import Config, RunSettings, merge_configs, parse_config, passed_on, require_thread
from perdure.data import Durability, StateSnapshot, StreamMode
from perdure.errors import GraphValidationError, PerdureWarning
from perdure.pregel.events.sink import Events, stream
from perdure.pregel.frame import Frame
from perdure.pregel.plan.limits import seconds
from perdure.pregel.plan.names import names_of, nearest
from perdure.pregel.plan.plan import Described
from perdure.pregel.run.begin import run_graph
from perdure.pregel.run.breakpoints import Breakpoints, breakpoints
from perdure.pregel.run.request import RunRequest
from perdure.pregel.snapshots import read_snapshot
from perdure.pregel.step.task import Task, running_task
from perdure.pregel.work.cache_key import namespace_of
from perdure.pregel.work.scope import Scope, nobody_reads
from perdure.sync import sync_iterator_of, sync_of

_DURABILITIES = get_args(Durability)


class Pregel(Frame):
    """A graph that can be run. It holds no state of any run, and may be used by many at once.

    A StateGraph compiles to one; from nodes and channels it is made directly.

    Example:
        >>> double = NodeBuilder().subscribe_only("x").do(lambda x: 2 * x).write_to("y")
        >>> graph = Pregel(
        ...     nodes={"double": double},
        ...     channels={"x": LastValue(int), "y": LastValue(int)},
        ...     input_channels="x",
        ...     output_channels="y",
        ... )
        >>> # await graph.ainvoke(21) returns 42
    """

    async def ainvoke(
        self,
        input: Any,
        config: Config | None = None,
        *,
        context: Any = None,
        output_keys: str | Sequence[str] | None = None,
        interrupt_before: Sequence[str] | None = None,
        interrupt_after: Sequence[str] | None = None,
        durability: Durability | None = None,
        debug: bool | None = None,
    ) -> Any:
        """Run the graph to its end and return the output.

        Args:
            input: a mapping of state keys, or an object with such attributes; of a state that is a bare
                value, that; of other graphs, what the input channel takes. None continues what the thread
                had left to do; so does a Command, after its update, and besides goes where it says.
            config: see RunnableConfig. With a checkpointer, `configurable.thread_id` is required.
            context: what nodes find as `runtime.context`; default: the surrounding run's.
            output_keys: the state keys to return, or one, whose bare value is returned; default: those of
                the output schema.
            interrupt_before, interrupt_after: nodes before or after which to stop, "*" for all, in place
                of those that the graph was compiled with. The thread is given back as it is then, and
                None as the input goes on.
            durability: see Durability; default "async".
            debug: print every superstep, and warn of values that nodes change in place; default: as the
                graph was compiled, or the surrounding run.

        Raises:
            MissingThreadError: there is a checkpointer, but no thread_id.
            EmptyInputError: the input is None, and the thread has nothing to resume.
            InvalidUpdateError: the input, or what a node returned, is not an update of the state.
            GraphRecursionError: `recursion_limit` supersteps were not enough.
            ThreadBusyError: another run holds the thread.
            StaleRunError: this run lost its thread to another.
            Exception: whatever a node raised, as itself, with a note that names the task.
        """
        stops = self._breakpoints(interrupt_before, interrupt_after)
        request = self._request(
            input, config, context, output_keys, durability, debug=debug, breakpoints=stops
        )
        return await run_graph(request if input is not None else await self._resumed(request))

    async def abatch(
        self,
        inputs: Sequence[Mapping[str, Any] | None],
        config: Config | Sequence[Config] | None = None,
        *,
        return_exceptions: bool = False,
        **options: Any,
    ) -> list[Any]:
        """Run the graph on every input, side by side, and return the outputs in the order of the inputs.

        Args:
            config: one for all, or one for each. Its `max_concurrency`, or that of the first, bounds how
                many runs go on at the same time, as it does the tasks of each. Runs on one thread
                cannot go on at the same time: with a checkpointer, give each its own.
            return_exceptions: an error stands in the place of its run's output, instead of
                stopping the other runs and being raised.
            options: what `ainvoke` takes.
        """
        one_for_all = config is None or isinstance(config, Mapping)
        configs: Sequence[Any] = [config] * len(inputs) if one_for_all else list(config or ())
        if len(configs) != len(inputs):
            raise GraphValidationError(
                f"There are {len(inputs)} inputs, but {len(configs)} configs: give one for all, or one for "
                "each."
            )
        if not inputs:
            return []
        limit = self._settings(configs[0], running_task()).max_concurrency
        calls = [
            partial(self.ainvoke, given, said, **options) for given, said in zip(inputs, configs, strict=True)
        ]
        return await all_of(calls, limit=limit, keep_errors=return_exceptions)

    def astream(
        self,
        input: Any,
        config: Config | None = None,
        *,
        context: Any = None,
        stream_mode: StreamMode | Sequence[StreamMode] | None = None,
        output_keys: str | Sequence[str] | None = None,
        interrupt_before: Sequence[str] | None = None,
        interrupt_after: Sequence[str] | None = None,
        durability: Durability | None = None,
        debug: bool | None = None,
    ) -> AsyncIterator[Any]:
        """Run the graph and yield what happens, as it does. Raises what `ainvoke` raises.

        Leaving the iterator, in whatever way, cancels the run; what finished is stored.

        Args:
            stream_mode: "updates" yields `{node: update}` when a task ends; "values" the output
                whenever a superstep changed it; "custom" what nodes give to their stream writer. For a
                list of modes, pairs `(mode, payload)`. Default: the graph's own, which is "updates" for a
                StateGraph.
            output_keys: the channels to show, or one, whose bare value is shown; default: the graph's
                `stream_channels`.
        """
        events = Events(self.stream_mode if stream_mode is None else stream_mode)
        keys = self.stream_channels if output_keys is None else output_keys
        stops = self._breakpoints(interrupt_before, interrupt_after)
        request = self._request(
            input, config, context, keys, durability, events=events, debug=debug, breakpoints=stops
        )

        async def run() -> Any:
            return await run_graph(await self._resumed(request))

        return stream(events, run)

    async def acontinue(self, orphan: Orphan, *, context: Any = None) -> Any:
        """Continue a run whose process is gone, and return its output; `recover` finds such runs.

        Args:
            context: what `ainvoke` would be given, which is not stored.

        Raises what `ainvoke` raises, and OrphanTakenError if the run is not an orphan any more.
        """
        request = self._request(None, None, context, None, orphan.durability)
        return await run_graph(_continuing(request, orphan))

    async def _resumed(self, request: RunRequest) -> RunRequest:
        """A request to go on with a thread whose last run was killed, as one to continue that run.

        Otherwise what that run had been given, and had not stored anything of, would be lost.
        """
        saver, settings = request.saver, request.settings
        asked = request.input is None and settings.checkpoint_id is None and request.scope.above is None
        if not asked or settings.thread_id is None or not isinstance(saver, LeasedSaver):
            return request
        orphans = await saver.aorphans(graph=self.name, thread_id=settings.thread_id)
        return _continuing(request, orphans[0]) if orphans else request

    async def aget_state(self, config: Config) -> StateSnapshot:
        """The thread as it is now, or at the checkpoint that the config names."""
        settings = parse_config(merge_configs(self.config, config) if self.config else config)
        return await read_snapshot(self.plan, self._saver(), settings, require_thread(settings))

    def _breakpoints(self, before: Sequence[str] | None, after: Sequence[str] | None) -> Breakpoints | None:
        return breakpoints(before or self.interrupt_before_nodes, after or self.interrupt_after_nodes)

    def get_input_jsonschema(self) -> dict[str, Any]:
        """The JSON schema of what the graph is invoked with."""
        return self._json_schema("input") or {}

    def get_output_jsonschema(self) -> dict[str, Any]:
        """The JSON schema of what an invocation returns."""
        return self._json_schema("output") or {}

    def get_context_jsonschema(self) -> dict[str, Any] | None:
        """The JSON schema of `context`; None if the graph declares none."""
        return self._json_schema("context")

    def _json_schema(self, what: Described) -> dict[str, Any] | None:
        return None if self.plan.json_schema is None else self.plan.json_schema(what)

    async def aclear_cache(self, nodes: Sequence[str] | None = None) -> None:
        """Forget the cached results of these nodes, or of all.

        They are those of every graph of this name on this cache, in all versions of its code.

        Raises GraphValidationError if the graph has no cache, or no such node.
        """
        if self.cache is None:
            raise GraphValidationError("No cache is set for this graph. Cannot clear cache.")
        if nodes is None:
            await self.cache.aclear([namespace_of(self.name)])
            return
        for node in nodes:
            if node not in self.plan.nodes:
                raise GraphValidationError(
                    f"Graph {self.name!r} has no node {node!r}." + nearest(node, self.plan.nodes)
                )
        await self.cache.aclear([namespace_of(self.name, node) for node in nodes])

    def _saver(self) -> BaseCheckpointSaver:
        if not isinstance(self.checkpointer, BaseCheckpointSaver):
            raise GraphValidationError(
                "No checkpointer set: this graph keeps nothing. Compile it with compile(checkpointer=...)."
            )
        return self.checkpointer

    def _request(
        self,
        input: Any,
        config: Config | None,
        context: Any,
        output_keys: str | Sequence[str] | None,
        durability: Durability | None,
        *,
        events: Events | None = None,
        debug: bool | None = None,
        breakpoints: Breakpoints | None = None,
    ) -> RunRequest:
        if durability is not None and durability not in _DURABILITIES:
            raise GraphValidationError(
                f"Unknown durability {durability!r}. Known: {', '.join(_DURABILITIES)}."
            )
        parent = running_task()
        if (
            durability is not None
            and parent is None
            and not isinstance(self.checkpointer, BaseCheckpointSaver)
        ):
            warnings.warn(
                "`durability` has no effect when no checkpointer is present.", PerdureWarning, stacklevel=3
            )
        return RunRequest(
            plan=self.plan,
            input=input,
            scope=self._scope(config, context, events, parent, debug),
            saver=self.checkpointer,
            durability=durability or "async",
            output_keys=self._output_keys(output_keys),
            events=events,
            breakpoints=breakpoints,
        )

    def _scope(
        self,
        config: Config | None,
        context: Any,
        events: Events | None,
        parent: Task | None,
        debug: bool | None,
    ) -> Scope:
        """What this run offers; below a node, what the surrounding run offers unless this one says more."""
        above = None if parent is None else parent.superstep.scope
        return Scope(
            settings=self._settings(config, parent),
            clock=self._clock if above is None else above.clock,
            loop=loop_here(),
            context=above.context if above is not None and context is None else self._context(context),
            store=self.store if above is None or above.store is None else above.store,
            cache=self.cache if above is None or above.cache is None else above.cache,
            writer=nobody_reads if events is None or not events.custom else events.writer(),
            above=parent,
            debug=debug if debug is not None else self.debug or (above is not None and above.debug),
            random=random.random if above is None else above.random,
            watch=None if parent is None else parent.watch,
            step_timeout=None if self.step_timeout is None else seconds(self.step_timeout, "step_timeout"),
        )

    def _settings(self, config: Config | None, parent: Task | None) -> RunSettings:
        """What the call says, then what this graph is bound to, then what the surrounding run says."""
        if parent is not None and config:
            config = passed_on(config, parent.superstep.scope.settings, parent.namespace)
        if self.config:
            config = merge_configs(self.config, config)
        return parse_config(config) if parent is None else parse_config(config, parent.settings_below())

    def _context(self, given: Any) -> Any:
        make = self.plan.context
        return given if make is None or given is None else make(given)

    def _output_keys(self, chosen: str | Sequence[str] | None) -> str | Sequence[str]:
        if chosen is None:
            return self.plan.output_keys
        for key in names_of(chosen):
            if key not in self.plan.state_keys:
                raise GraphValidationError(
                    f"Key {key!r} not in channels." + nearest(str(key), self.plan.state_keys)
                )
        return chosen if isinstance(chosen, str) else tuple(chosen)

    def home(self) -> Any:
        """The event loop that sync calls are made on; None if any will do."""
        own = getattr(self.checkpointer, "home", None) or getattr(self.cache, "home", None)
        task = running_task()
        return own if own is not None or task is None else task.superstep.scope.loop

    invoke = sync_of(ainvoke)
    stream = sync_iterator_of(astream)
    batch = sync_of(abatch)
    get_state = sync_of(aget_state)
    clear_cache = sync_of(aclear_cache)


def _continuing(request: RunRequest, orphan: Orphan) -> RunRequest:
    """The request as one to continue an orphan, as that was asked for."""
    configurable = {**orphan.config.get("configurable", {}), "thread_id": orphan.thread_id}
    recorded = dict(orphan.config)
    stops = breakpoints(recorded.pop("interrupt_before", ()), recorded.pop("interrupt_after", ()))
    settings = parse_config({**recorded, "configurable": configurable})
    return replace(
        request.with_settings(settings), orphan=orphan, durability=orphan.durability, breakpoints=stops
    )
