"""What is asked of how the nodes of a StateGraph are run: for one of them, or by default."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from perdure.graph.description import Description, NodeDefaults, StateNode
from perdure.pregel.plan.plan import Policies
from perdure.pregel.plan.policies import policies_of


def handlers_of(graph: Description) -> frozenset[str]:
    """The hidden nodes that handle the errors of others."""
    named = (graph.defaults.error_handler, *(node.error_handler for node in graph.nodes.values()))
    return frozenset(name for name in named if name is not None)


def node_policies(
    name: str, node: StateNode, defaults: NodeDefaults, handlers: Iterable[str]
) -> Policies | None:
    """What node `name` asks for, or is given by default.

    A node among `handlers` handles the errors of others: its own are handled by nobody, and its
    results are not kept in a cache.
    """
    handles = name in handlers
    return policies_of(
        name,
        node.calling,
        retry=_either(node.retry_policy, defaults.retry_policy),
        timeout=_either(node.timeout, defaults.timeout),
        cache=None if handles else _either(node.cache_policy, defaults.cache_policy),
        handler=None if handles else _either(node.error_handler, defaults.error_handler),
    )


def _either(own: Any, default: Any) -> Any:
    return default if own is None else own
