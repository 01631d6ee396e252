"""A run's configuration: a plain mapping for callers, parsed once into RunSettings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

from perdure.constants import DEFAULT_RECURSION_LIMIT
from perdure.errors import GraphValidationError, MissingThreadError


class RunnableConfig(TypedDict, total=False):
    """What a caller may say about a run.

    `configurable` addresses the thread: `thread_id`, `checkpoint_ns`, `checkpoint_id`.
    `recursion_limit` is the number of supersteps of nodes that the run may take.
    `max_concurrency` bounds how many tasks of a superstep run at the same time.
    `metadata` is stored with every checkpoint; its values are JSON scalars.
    """

    configurable: dict[str, Any]
    recursion_limit: int
    max_concurrency: int | None
    metadata: dict[str, Any]
    tags: list[str]
    run_id: str
    run_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """A parsed RunnableConfig.

    Attributes:
        configurable: as given; a config that addresses a thread inherits none from the surrounding run.
    """

    thread_id: str | None = None
    namespace: str = ""
    checkpoint_id: str | None = None
    recursion_limit: int = DEFAULT_RECURSION_LIMIT
    max_concurrency: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    configurable: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    run_id: str | None = None


_DEFAULT = RunSettings()
_ADDRESS = {"thread_id", "checkpoint_ns", "checkpoint_id", "checkpoint_map"}


def parse_config(
    config: RunnableConfig | Mapping[str, Any] | None, surrounding: RunSettings = _DEFAULT
) -> RunSettings:
    """Read a config once, refusing what cannot be meant.

    What it leaves out is taken from the `surrounding` run, but for what addresses a thread.
    """
    if not config and surrounding is _DEFAULT:
        return _DEFAULT
    config = config or {}
    configurable = config.get("configurable") or {}
    thread_id = configurable.get("thread_id")
    run_id = config.get("run_id")
    return RunSettings(
        thread_id=None if thread_id is None else str(thread_id),
        namespace=configurable.get("checkpoint_ns") or "",
        checkpoint_id=configurable.get("checkpoint_id") or None,
        recursion_limit=_at_least_one(config, "recursion_limit", surrounding.recursion_limit),
        max_concurrency=_at_least_one(config, "max_concurrency", surrounding.max_concurrency),
        metadata={**surrounding.metadata, **(config.get("metadata") or {})},
        configurable={**_inherited(surrounding.configurable, configurable), **configurable},
        tags=tuple(dict.fromkeys((*surrounding.tags, *(config.get("tags") or ())))),
        run_id=None if run_id is None else str(run_id),
    )


def _inherited(above: Mapping[str, Any], own: Mapping[str, Any]) -> Mapping[str, Any]:
    return {} if _ADDRESS & own.keys() else above


def _at_least_one(config: Mapping[str, Any], name: str, default: Any) -> Any:
    value = config.get(name)
    if value is None:
        return default
    if type(value) is not int or value < 1:
        raise GraphValidationError(f"{name} must be at least 1, and a whole number; got {value!r}")
    return value


def require_thread(settings: RunSettings) -> str:
    """The thread id, or an error that says how to give one."""
    if settings.thread_id is None:
        raise MissingThreadError(
            "This graph has a checkpointer, so a call must name its thread: pass "
            'config={"configurable": {"thread_id": "..."}}.'
        )
    return settings.thread_id
