"""Checks of nodes: their names, and the destinations that they declare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perdure.constants import DEFAULT_ERROR_HANDLER, END, ERROR_HANDLER_PREFIX, RESERVED_NODE_NAMES
from perdure.errors import GraphValidationError
from perdure.graph.description import StateNode
from perdure.pregel.plan.names import check_characters, nearest


def check_name(name: str, known: Mapping[str, StateNode], action: object) -> None:
    """Refuse a node without an action, and one whose name is taken, reserved or malformed."""
    if action is None:
        raise GraphValidationError(f"Node {name!r} has no action: call add_node({name!r}, action).")
    if name in known:
        raise GraphValidationError(f"Node `{name}` already present.")
    handles_errors = name == DEFAULT_ERROR_HANDLER or name.startswith(ERROR_HANDLER_PREFIX)
    if name in RESERVED_NODE_NAMES or handles_errors:
        raise GraphValidationError(f"Node `{name}` is reserved.")
    check_characters(name)


def check_sequence(names: Sequence[str], known: Mapping[str, StateNode]) -> None:
    """Refuse a sequence without nodes, and one with a name that is taken or repeated."""
    if not names:
        raise GraphValidationError("Sequence requires at least one node.")
    taken = set(known)
    for name in names:
        if name in taken:
            raise GraphValidationError(
                f"Node names must be unique: node with the name '{name}' already exists. Name nodes by "
                "pairs (name, action) to add the same action again."
            )
        taken.add(name)


def check_destinations(nodes: Mapping[str, StateNode]) -> None:
    """Refuse a node that declares a destination which does not exist."""
    for name, node in nodes.items():
        for target in node.destinations or {}:
            if target != END and target not in nodes:
                raise GraphValidationError(
                    f"Node {name!r} declares that it goes to {target!r}, which is not a node."
                    + nearest(target, nodes)
                    + " Do not declare a node of a graph around this one: annotate `Command[str]`, or add "
                    "the node with destinations=()."
                )
