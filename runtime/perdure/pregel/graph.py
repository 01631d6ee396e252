"""Pregel: what can be done with a compiled graph."""

from __future__ import annotations

import random
import warnings
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from perdure.checkpoint.base import BaseCheckpointSaver, LeasedSaver, Orphan
from perdure.config import RunnableConfig, parse_config, require_thread
from perdure.data import Durability, StateSnapshot, StreamMode
from perdure.errors import GraphValidationError, PerdureWarning
from perdure.pregel.frame import Frame
from perdure.pregel.opening import RunRequest
from perdure.pregel.run import run_graph
from perdure.pregel.scope import Scope, nobody_reads
from perdure.pregel.snapshots import read_snapshot
from perdure.pregel.stream import Events, stream
from perdure.pregel.task import Task, running_task

_DURABILITIES = ("sync", "async", "exit")


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
        config: RunnableConfig | Mapping[str, Any] | None = None,
        *,
        context: Any = None,
        output_keys: str | Sequence[str] | None = None,
        durability: Durability | None = None,
    ) -> Any:
        """Run the graph to its end and return the output.

        Args:
            input: a mapping of state keys, or what the input channel takes; None continues what the thread
                had left to do.
            config: see RunnableConfig. With a checkpointer, `configurable.thread_id` is required.
            context: what nodes find as `runtime.context`; default: the surrounding run's.
            output_keys: the state keys to return, or one, whose bare value is returned; default: those of
                the output schema.
            durability: see Durability; default "async".

        Raises:
            MissingThreadError: there is a checkpointer, but no thread_id.
            EmptyInputError: the input is None, and the thread has nothing to resume.
            InvalidUpdateError: the input, or what a node returned, is not an update of the state.
            GraphRecursionError: `recursion_limit` supersteps were not enough.
            ThreadBusyError: another run holds the thread.
            StaleRunError: this run lost its thread to another.
            Exception: whatever a node raised, as itself, with a note that names the task.
        """
        request = self._request(input, config, context, output_keys, durability, None)
        return await run_graph(request if input is not None else await self._resumed(request))

    def astream(
        self,
        input: Any,
        config: RunnableConfig | Mapping[str, Any] | None = None,
        *,
        context: Any = None,
        stream_mode: StreamMode | Sequence[StreamMode] | None = None,
        output_keys: str | Sequence[str] | None = None,
        durability: Durability | None = None,
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
        request = self._request(input, config, context, keys, durability, events)

        async def run() -> Any:
            return await run_graph(await self._resumed(request))

        return stream(events, run)

    async def acontinue(self, orphan: Orphan) -> Any:
        """Continue a run whose process is gone, and return its output; `recover` finds such runs.

        Raises what `ainvoke` raises, and OrphanTakenError if the run is not an orphan any more.
        """
        request = self._request(None, None, None, None, orphan.durability, None)
        return await run_graph(_continuing(request, orphan))

    async def _resumed(self, request: RunRequest) -> RunRequest:
        """A request to go on with a thread whose last run was killed, as one to continue that run.

        Otherwise what that run had been given, and had not stored anything of, would be lost.
        """
        saver, thread_id = request.saver, request.settings.thread_id
        asked = request.input is None and request.settings.checkpoint_id is None and running_task() is None
        if not asked or thread_id is None or not isinstance(saver, LeasedSaver):
            return request
        orphans = await saver.aorphans(graph=self.name, thread_id=thread_id)
        return _continuing(request, orphans[0]) if orphans else request

    async def aget_state(self, config: RunnableConfig | Mapping[str, Any]) -> StateSnapshot:
        """The thread as it is now, or at the checkpoint that the config names."""
        settings = parse_config(config)
        return await read_snapshot(self.plan, self._saver(), settings, require_thread(settings))

    def _saver(self) -> BaseCheckpointSaver:
        if not isinstance(self.checkpointer, BaseCheckpointSaver):
            raise GraphValidationError(
                "No checkpointer set: this graph keeps nothing. Compile it with compile(checkpointer=...)."
            )
        return self.checkpointer

    def _request(
        self,
        input: Any,
        config: RunnableConfig | Mapping[str, Any] | None,
        context: Any,
        output_keys: str | Sequence[str] | None,
        durability: Durability | None,
        events: Events | None,
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
            scope=self._scope(config, context, events, parent),
            saver=self.checkpointer,
            durability=durability or "async",
            output_keys=self._output_keys(output_keys),
            events=events,
        )

    def _scope(
        self,
        config: RunnableConfig | Mapping[str, Any] | None,
        context: Any,
        events: Events | None,
        parent: Task | None,
    ) -> Scope:
        """What this run offers; below a node, what the surrounding run offers unless this one says more."""
        above = None if parent is None else parent.superstep.scope
        settings = parse_config(config) if above is None else parse_config(config, above.settings)
        return Scope(
            settings=settings,
            clock=self._clock,
            context=above.context if above is not None and context is None else context,
            store=self.store if above is None or above.store is None else above.store,
            cache=self.cache if above is None or above.cache is None else above.cache,
            writer=nobody_reads if events is None or not events.custom else events.writer(),
            debug=self.debug,
            random=random.random,
        )

    def _output_keys(self, chosen: str | Sequence[str] | None) -> str | Sequence[str]:
        if chosen is None:
            return self.plan.output_keys
        for key in (chosen,) if isinstance(chosen, str) else chosen:
            if key not in self.plan.state_keys:
                raise GraphValidationError(
                    f"Key {key!r} not in channels. Known: {', '.join(sorted(self.plan.state_keys))}."
                )
        return chosen if isinstance(chosen, str) else tuple(chosen)


def _continuing(request: RunRequest, orphan: Orphan) -> RunRequest:
    """The request as one to continue an orphan, as that was asked for."""
    configurable = {**orphan.config.get("configurable", {}), "thread_id": orphan.thread_id}
    settings = parse_config({**orphan.config, "configurable": configurable})
    return replace(request.with_settings(settings), orphan=orphan, durability=orphan.durability)
