"""Namespaces: the places of graphs that run inside nodes of other graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from perdure.constants import NAMESPACE_END, NAMESPACE_SEPARATOR


@dataclass(frozen=True, slots=True)
class Namespace:
    """The place of a graph below the graphs that run it.

    Attributes:
        text: the namespace as it is stored: `node:task_id` of each task above, joined by `|`. A task's second
            child graph has another part `|1`, its third `|2`. Empty for the root.
    """

    text: str = ""

    def child(self, name: str, task_id: str) -> Namespace:
        """Return the namespace below a task of this graph."""
        own = f"{name}{NAMESPACE_END}{task_id}"
        return Namespace(f"{self.text}{NAMESPACE_SEPARATOR}{own}" if self.text else own)

    def call(self, ordinal: int) -> Namespace:
        """Return the namespace of a task's child graph number `ordinal`, counted from 0."""
        return Namespace(f"{self.text}{NAMESPACE_SEPARATOR}{ordinal}") if ordinal else self

    @property
    def parent(self) -> Namespace | None:
        """The namespace of the parent graph; None for the root."""
        parts = self.text.split(NAMESPACE_SEPARATOR) if self.text else []
        while parts and parts[-1].isdigit():
            parts.pop()
        return Namespace(NAMESPACE_SEPARATOR.join(parts[:-1])) if parts else None

    @property
    def path(self) -> tuple[str, ...]:
        """The parts of the text, as events show them: each a node with its task id, or an ordinal."""
        return tuple(self.text.split(NAMESPACE_SEPARATOR)) if self.text else ()

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes on the way from the root to this namespace, without their task ids."""
        parts = self.text.split(NAMESPACE_SEPARATOR) if self.text else ()
        return tuple(part.partition(NAMESPACE_END)[0] for part in parts if not part.isdigit())


ROOT_NAMESPACE: Final = Namespace()
