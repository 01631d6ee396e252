"""Task ids and channel versions, computed from the things that they name."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

_COUNTER_DIGITS = 10
"""Digits of a version's counter. `make_version` repeats the number: a literal there is twice as fast."""


def task_id(
    checkpoint_id: str, namespace: str, step: int, node: str, path: str, triggers: Sequence[str]
) -> str:
    """Compute a task's id: equal for equal arguments, on every machine.

    A NUL separates the parts. No part can contain one, so different lists of parts give different ids.
    """
    parts = (checkpoint_id, namespace, str(step), node, path, *triggers)
    digest = blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-{digest[12:16]}-{digest[16:20]}-{digest[20:]}"


def path_text(path: tuple[str | int, ...]) -> str:
    """Return a task's path as stored text. The texts sort in the order of the paths."""
    return "~" + ", ".join(f"{item:010d}" if isinstance(item, int) else item for item in path)


def make_version(counter: int, checkpoint_id: str) -> str:
    """Return the version of the channels that the superstep of `checkpoint_id` changed.

    Compared as text, a thread's versions are in the order in which they were made. Two branches of one
    checkpoint never make equal versions.
    """
    return f"{counter:010d}.{checkpoint_id}"


def version_counter(version: str) -> int:
    """Return the counter in a version."""
    return int(version[:_COUNTER_DIGITS])


def version_checkpoint(version: str) -> str:
    """Return the id of the checkpoint that wrote a version."""
    return version[_COUNTER_DIGITS + 1 :]
