"""The request for a run, and its form in a claim."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import uuid6

from perdure.checkpoint.base import BaseCheckpointSaver, ClaimRequest, LeasedSaver, Orphan
from perdure.checkpoint.serde.json import exact_json
from perdure.config import ADDRESS, RunSettings, parse_config
from perdure.data import Durability
from perdure.errors import UnserializableValueError
from perdure.pregel.events.buffer import Buffer
from perdure.pregel.events.sink import Sink
from perdure.pregel.plan.plan import Plan
from perdure.pregel.run.breakpoints import Breakpoints, breakpoints
from perdure.pregel.step.commands import recorded
from perdure.pregel.work.running import Scope


class RunRequest(NamedTuple):
    """The request for a run.

    Attributes:
        input: a mapping, an object, a Command, or None to continue what is stored.
        saver: the saver of the run. None stores nothing, unless a surrounding run does; False stores nothing
            in any case.
        orphan: the run to continue, whose process is gone.
    """

    plan: Plan
    input: Any
    scope: Scope
    saver: BaseCheckpointSaver | bool | None
    durability: Durability
    output_keys: str | tuple[str, ...]
    breakpoints: Breakpoints | None = None
    orphan: Orphan | None = None

    @property
    def settings(self) -> RunSettings:
        return self.scope.settings

    def with_settings(self, settings: RunSettings) -> RunRequest:
        """Return the request with other settings."""
        return self._replace(scope=self.scope._replace(settings=settings))

    def read_through(self, buffer: Buffer) -> RunRequest:
        """Return the request with events that go into a buffer, and to the readers of runs around it."""
        return self._replace(scope=self.scope._replace(sink=Sink(buffer, above=self.scope.sink)))

    def called(self, ordinal: int) -> RunRequest:
        """Return the request as that of a node's child graph number `ordinal`, counted from 0."""
        sink = self.scope.sink
        if sink is None or ordinal == 0:
            return self
        return self._replace(scope=self.scope._replace(sink=sink.call(ordinal)))

    def continuing(self, orphan: Orphan) -> RunRequest:
        """Return a request to continue an orphan, with the options that its claim has recorded."""
        configurable = {**orphan.config.get("configurable", {}), "thread_id": orphan.thread_id}
        config = dict(orphan.config)
        stops = breakpoints(config.pop("interrupt_before", ()), config.pop("interrupt_after", ()))
        settings = parse_config({**config, "configurable": configurable})
        return self.with_settings(settings)._replace(
            orphan=orphan, durability=orphan.durability, breakpoints=stops
        )

    @property
    def checkpoint_id(self) -> str | None:
        """The checkpoint to begin at; None for the newest one, from which an orphan continues."""
        started = self.orphan is not None and self.orphan.started
        return None if started else self.settings.checkpoint_id

    def claim(self, saver: LeasedSaver, thread_id: str) -> ClaimRequest:
        """Return the claim, which records everything that another process needs to continue the run."""
        settings, orphan = self.settings, self.orphan
        try:
            recorded_input = saver.serde.dumps(recorded(self.input))
        except UnserializableValueError as error:
            raise UnserializableValueError(
                f"The input of the run on thread {thread_id!r} cannot be recorded: {error}"
            ) from error
        return ClaimRequest(
            thread_id=thread_id,
            run_id=orphan.run_id if orphan is not None else settings.run_id or str(uuid6.uuid7()),
            graph=self.plan.name,
            signature=self.plan.signature,
            input=recorded_input,
            config=_recorded_config(settings, self.breakpoints),
            durability=self.durability,
            checkpoint_id=self.checkpoint_id,
            successor_of=orphan.epoch if orphan is not None else None,
        )


def _recorded_config(settings: RunSettings, stops: Breakpoints | None) -> dict[str, Any]:
    """Return the config with which the run has to be continued, without thread and input."""
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
    """Return the part of a config that another process can use: no addresses, no objects of this process."""
    return {
        key: value
        for key, value in configurable.items()
        if key not in ADDRESS and (type(value) is str or exact_json(value) is not None)
    }
