"""The policies of a StateGraph's nodes: their own, or the graph's defaults."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from perdure.graph.description import Description, NodeDefaults, StateNode
from perdure.pregel.plan.plan import Policies
from perdure.pregel.plan.policies import policies_of

Policy = TypeVar("Policy")


def handlers_of(graph: Description) -> frozenset[str]:
    """Return the hidden nodes that handle the errors of others."""
    named = (graph.defaults.error_handler, *(node.error_handler for node in graph.nodes.values()))
    return frozenset(name for name in named if name is not None)


def node_policies(
    name: str, node: StateNode, defaults: NodeDefaults, handlers: Iterable[str]
) -> Policies | None:
    """Return the policies of node `name`; None if it is simply called.

    The errors of a node among `handlers` are not handled, and its results are not cached.
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


def _either(own: Policy | None, default: Policy | None) -> Policy | None:
    return default if own is None else own
