"""A run's configuration: a mapping for callers, parsed once into RunSettings; nodes can ask for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypedDict, cast

from perdure.constants import DEFAULT_RECURSION_LIMIT
from perdure.context import current_task
from perdure.data import StreamWriter
from perdure.errors import GraphValidationError, MissingThreadError, NotInNodeError


class RunnableConfig(TypedDict, total=False):
    """What a caller may say about a run.

    `configurable` addresses the thread: `thread_id`, `checkpoint_ns`, `checkpoint_id`.
    `recursion_limit` is the number of supersteps of nodes that the run may take.
    `max_concurrency` bounds how many tasks of a superstep run at the same time.
    `metadata` is stored with every checkpoint; its values are JSON scalars.
    `callbacks` are handed to the runnables of other packages that nodes run.
    What has another name than these is taken as part of `configurable`.
    """

    configurable: dict[str, Any]
    recursion_limit: int
    max_concurrency: int | None
    metadata: dict[str, Any]
    tags: list[str]
    run_id: str
    run_name: str
    callbacks: Any


Config = RunnableConfig | Mapping[str, Any]
"""What is taken for one."""


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
    callbacks: Any = None


_DEFAULT = RunSettings()
ADDRESS = {"thread_id", "checkpoint_ns", "checkpoint_id", "checkpoint_map"}
"""The keys of `configurable` that say which thread, and where in it."""
_KNOWN = RunnableConfig.__annotations__.keys()


def task_metadata(**said: Any) -> dict[str, Any]:
    """What the engine says of a task in the metadata of its config."""
    return {f"langgraph_{key}": value for key, value in said.items()}


_TASK_METADATA = task_metadata(step=0, node="", triggers=(), path=(), checkpoint_ns="").keys()


def merge_configs(bound: Mapping[str, Any] | None, explicit: Mapping[str, Any] | None) -> dict[str, Any]:
    """One config that says what both say, and `explicit` where they differ.

    Tags are joined, metadata and configurable merged key by key, lists of callbacks appended.
    """
    first, second = _gathered(bound), _gathered(explicit)
    merged = {**first, **{key: value for key, value in second.items() if value is not None}}
    for key in ("metadata", "configurable"):
        if first.get(key) and second.get(key):
            merged[key] = {**first[key], **second[key]}
    merged["tags"] = _joined(first.get("tags"), second.get("tags"))
    merged["callbacks"] = _all_callbacks(first.get("callbacks"), second.get("callbacks"))
    return {key: value for key, value in merged.items() if value is not None and value != []}


def _gathered(config: Mapping[str, Any] | None) -> dict[str, Any]:
    """The config with what has no name of ours in its `configurable`."""
    _require_mapping(config)
    gathered = dict(config or {})
    others = gathered.keys() - _KNOWN
    if others:
        configurable = {key: gathered.pop(key) for key in sorted(others)}
        gathered["configurable"] = {**configurable, **(gathered.get("configurable") or {})}
    return gathered


def _require_mapping(config: Any) -> None:
    if config is not None and not isinstance(config, Mapping):
        raise TypeError(
            f"A config is a mapping, not {config!r}: to name a thread, write "
            '{"configurable": {"thread_id": "..."}}.'
        )


def _joined(first: Iterable[str] | None, second: Iterable[str] | None) -> list[str]:
    return list(dict.fromkeys((*(first or ()), *(second or ()))))


def _all_callbacks(first: Any, second: Any) -> Any:
    if isinstance(first, list) and isinstance(second, list):
        return [*first, *(callback for callback in second if callback not in first)]
    return first if second is None else second


def passed_on(config: Mapping[str, Any], surrounding: RunSettings, namespace: str) -> Mapping[str, Any]:
    """A config that a node gives to a graph that it runs, without what says only where the node is.

    Its own, as it was given it in `namespace`, then means the same as none. Any other is left as it is.
    """
    configurable = config.get("configurable") or {}
    own = {**surrounding.configurable, "checkpoint_ns": namespace}
    if "checkpoint_ns" not in configurable or any(configurable.get(k) != own.get(k) for k in ADDRESS):
        return config
    metadata = config.get("metadata") or {}
    return {
        **{key: value for key, value in config.items() if key not in ("run_id", "run_name")},
        "configurable": {key: value for key, value in configurable.items() if key not in ADDRESS},
        "metadata": {key: value for key, value in metadata.items() if key not in _TASK_METADATA},
    }


def parse_config(config: Config | None, surrounding: RunSettings = _DEFAULT) -> RunSettings:
    """Read a config once, refusing what cannot be meant.

    What it leaves out is taken from the `surrounding` run, but for what addresses a thread.
    """
    if not config and surrounding is _DEFAULT:
        return _DEFAULT
    config = config or {}
    if type(config) is not dict:
        _require_mapping(config)
    if not config.keys() <= _KNOWN:
        config = _gathered(config)
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
        callbacks=_all_callbacks(surrounding.callbacks, config.get("callbacks")),
    )


def _inherited(above: Mapping[str, Any], own: Mapping[str, Any]) -> Mapping[str, Any]:
    return {} if ADDRESS & own.keys() else above


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


# What code below a node can ask for


class RunningTask(Protocol):
    """What the engine leaves in `current_task`."""

    def runtime(self) -> Any:
        """The task's Runtime: its view of its run."""
        ...

    def config(self) -> RunnableConfig:
        """The task's config, as a node gets it."""
        ...


def require_task(asked: str) -> RunningTask:
    """The task whose node is running here. Raises NotInNodeError, which says what was asked, without one."""
    task = current_task.get()
    if task is None:
        raise NotInNodeError(
            f"Called {asked} outside of a runnable context: no node is running here. Code that a node hands "
            "to another thread sees it only in a copy of the node's contextvars."
        )
    return cast("RunningTask", task)


def get_config() -> RunnableConfig:
    """The config of the node that this is called below."""
    return require_task("get_config").config()


def get_store() -> Any:
    """The store of the run that this is called in; None if it has none."""
    return require_task("get_store").runtime().store


def get_stream_writer() -> StreamWriter:
    """What puts "custom" events into the stream of the run that this is called in."""
    writer: StreamWriter = require_task("get_stream_writer").runtime().stream_writer
    return writer
