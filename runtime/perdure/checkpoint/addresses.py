"""Addresses: the thread, the namespace and the checkpoint that a config names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from perdure.errors import MissingThreadError


class Address(NamedTuple):
    """The address of a checkpoint in a config; None for a part that the config does not name."""

    thread_id: str
    ns: str | None
    checkpoint_id: str | None


def address_of(config: Mapping[str, Any]) -> Address:
    """Return the address in a config. Raises MissingThreadError if it names no thread."""
    configurable = config.get("configurable") or {}
    thread_id = configurable.get("thread_id")
    if thread_id is None:
        raise MissingThreadError(
            'The config names no thread. Pass {"configurable": {"thread_id": "..."}}, with the same id for '
            "all calls on a thread."
        )
    return Address(str(thread_id), configurable.get("checkpoint_ns"), checkpoint_id_of(config))


def checkpoint_id_of(config: Mapping[str, Any]) -> str | None:
    """Return the id of the checkpoint that a config names, or None."""
    return (config.get("configurable") or {}).get("checkpoint_id") or None


def config_of(thread_id: str, ns: str, checkpoint_id: str) -> dict[str, Any]:
    """Return the config that addresses exactly this checkpoint."""
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}}


def require_ids(ids: Iterable[str], name: str) -> frozenset[str]:
    """Return ids as a set. Raises TypeError for one string, which is a sequence of letters, too."""
    if isinstance(ids, str):
        raise TypeError(f"{name} must be a sequence of ids, not the one string {ids!r}. Pass [{ids!r}].")
    return frozenset(ids)
