"""Ids that are functions of what they name: tasks and versions."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

_COUNTER_DIGITS = 10
"""Also in the format of `make_version`, where a literal is twice as fast."""


def task_id(
    checkpoint_id: str, namespace: str, step: int, node: str, path: str, triggers: Sequence[str]
) -> str:
    """The id of a task: the same for the same checkpoint and place in the schedule, on every machine.

    Each part is followed by a NUL, which none of them can contain, so no two lists of parts meet.
    """
    parts = (checkpoint_id, namespace, str(step), node, path, *triggers)
    digest = blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:]}"


def path_text(path: tuple[str | int, ...]) -> str:
    """A task's path as stored: text that sorts as the path does."""
    return "~" + ", ".join(f"{item:010d}" if isinstance(item, int) else item for item in path)


def make_version(counter: int, checkpoint_id: str) -> str:
    """The version of every channel that the superstep behind `checkpoint_id` changed.

    Versions of one thread compare as text in the order in which they were made, and two branches
    of one checkpoint never make the same one.
    """
    return f"{counter:010d}.{checkpoint_id}"


def version_counter(version: str) -> int:
    """The counter that `make_version` was given."""
    return int(version[:_COUNTER_DIGITS])


def version_checkpoint(version: str) -> str:
    """The id of the checkpoint that wrote this version."""
    return version[_COUNTER_DIGITS + 1 :]
