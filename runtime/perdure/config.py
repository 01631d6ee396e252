"""A run's configuration: the mapping that callers pass, and the RunSettings that it is parsed into once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypedDict, cast

from perdure.constants import DEFAULT_RECURSION_LIMIT
from perdure.context import current_task
from perdure.data import StreamWriter
from perdure.errors import GraphValidationError, MissingThreadError, NotInNodeError


class RunnableConfig(TypedDict, total=False):
    """The options of a run. A key with any other name becomes part of `configurable`.

    Attributes:
        configurable: the address of the thread (`thread_id`, `checkpoint_ns`, `checkpoint_id`), and values
            of the caller's own.
        recursion_limit: maximum number of supersteps of nodes.
        max_concurrency: maximum number of tasks that run at once in a superstep; None for no limit.
        metadata: JSON scalars that are stored with every checkpoint.
        callbacks: passed to the runnables of other packages that nodes run.
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
"""The types that are accepted as a config."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """A parsed RunnableConfig.

    Attributes:
        configurable: the config's own values, and those inherited from the surrounding run. A config that
            addresses a thread inherits none.
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
"""The keys of `configurable` that address a thread and a place in it."""
_KNOWN = RunnableConfig.__annotations__.keys()


def task_metadata(**said: Any) -> dict[str, Any]:
    """Return the metadata that the engine adds to a task's config."""
    return {f"langgraph_{key}": value for key, value in said.items()}


_TASK_METADATA = task_metadata(step=0, node="", triggers=(), path=(), checkpoint_ns="").keys()


def merge_configs(bound: Mapping[str, Any] | None, explicit: Mapping[str, Any] | None) -> dict[str, Any]:
    """Merge two configs. `explicit` wins where they differ.

    Tags are joined, metadata and configurable are merged key by key, and lists of callbacks are appended.
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
    """Move the keys that a RunnableConfig does not have into `configurable`."""
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
            f"A config must be a mapping, got {config!r}. To name a thread, pass "
            '{"configurable": {"thread_id": "..."}}.'
        )


def _joined(first: Iterable[str] | None, second: Iterable[str] | None) -> list[str]:
    return list(dict.fromkeys((*(first or ()), *(second or ()))))


def _all_callbacks(first: Any, second: Any) -> Any:
    if isinstance(first, list) and isinstance(second, list):
        return [*first, *(callback for callback in second if callback not in first)]
    return first if second is None else second


def passed_on(config: Mapping[str, Any], surrounding: RunSettings, namespace: str) -> Mapping[str, Any]:
    """Remove the node's own place from a config that the node passes to a child graph.

    A node may pass on the config that it received in `namespace`. That then means the same as passing none.
    A config with another address is returned unchanged.
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
    """Parse and validate a config.

    Options that it leaves out come from the `surrounding` run, except the address of a thread.
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
        raise GraphValidationError(
            f"{name} must be at least 1 and an integer, got {value!r}. Leave it out for the default."
        )
    return value


def require_thread(settings: RunSettings) -> str:
    """Return the thread id. Raises MissingThreadError if there is none."""
    if settings.thread_id is None:
        raise MissingThreadError(
            "The call names no thread, but the graph has a checkpointer. Pass "
            'config={"configurable": {"thread_id": "..."}}.'
        )
    return settings.thread_id


# For code that runs inside a node


class CurrentTask(Protocol):
    """The part of the engine's task that code inside a node can reach through `current_task`."""

    def runtime(self) -> Any:
        """Return the task's Runtime."""
        ...

    def config(self) -> RunnableConfig:
        """Return the task's config, as its node receives it."""
        ...


def require_task(asked: str) -> CurrentTask:
    """Return the running task. Raises NotInNodeError, naming the function `asked`, outside of a node."""
    task = current_task.get()
    if task is None:
        raise NotInNodeError(
            f"Called {asked} outside of a runnable context: no node is running here. If a node started this "
            "thread, run the function in a copy of the node's contextvars: runtime.in_thread(function)."
        )
    return cast("CurrentTask", task)


def get_config() -> RunnableConfig:
    """Return the config of the running node."""
    return require_task("get_config").config()


def get_store() -> Any:
    """Return the run's store, or None if it has none."""
    return require_task("get_store").runtime().store


def get_stream_writer() -> StreamWriter:
    """Return the function that writes "custom" events to the run's stream."""
    writer: StreamWriter = require_task("get_stream_writer").runtime().stream_writer
    return writer
