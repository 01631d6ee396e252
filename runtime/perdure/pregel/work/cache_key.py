"""Cache keys of tasks: their graph and node, and digests of the node's code and input."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final, NamedTuple

from perdure.cache.base import FullKey, Namespace
from perdure.cache.identity import CodeEncoder
from perdure.cache.typed import TypedEncoder, frame, text
from perdure.channels.binop import BinaryOperatorAggregate
from perdure.checkpoint.base import SerializerProtocol
from perdure.data import CachePolicy
from perdure.pregel.plan.plan import ChildGraph, Plan
from perdure.pregel.step.failures import add_note
from perdure.pregel.step.task import Task

CACHE_NAMESPACE: Final = "__pregel_ns_writes"

PRIVATE_SECONDS: Final = 86_400.0
"""The longest time to keep a result that no other process can use, in seconds."""

_SCHEME: Final = b"1"
"""The version of the scheme of keys. Another number makes other keys."""


class CachePlace(NamedTuple):
    """The place of a task's result in the cache, and the seconds for which it is kept; None: no limit."""

    key: FullKey
    ttl: float | None


class KeylessError(Exception):
    """An action or an input that cannot be told from others, so that its result cannot be cached."""


def namespace_of(graph: str, node: str | None = None) -> Namespace:
    """Return the namespace of the results of a node, or of all nodes of the graphs with this name."""
    return (CACHE_NAMESPACE, graph) if node is None else (CACHE_NAMESPACE, graph, node)


def place_of(plan: Plan, task: Task, policy: CachePolicy, serde: SerializerProtocol) -> CachePlace:
    """Return the place of a task's result, as this serializer writes it.

    Raises:
        KeylessError: the action or the input cannot be told from others.
        TypeError: the policy's key_func returned neither str nor bytes. What it raises is raised as it is.
    """
    compared = task.input if policy.key_func is None else _made_key(task, policy)
    code, given = CodeEncoder(stands_for), TypedEncoder()
    action = _encoded(code, "its action", task.spec.action)
    compared = _encoded(given, "its input", compared)
    own = b"default" if policy.key_func is None else b"made"
    names = map(text, (plan.name, plan.signature, task.name, _format(serde)))
    material = frame(b"K", _SCHEME, *names, action, frame(b"I", own, compared))
    key = blake2b(material, digest_size=32).hexdigest()
    ttl = policy.ttl
    if code.private or given.private:
        ttl = PRIVATE_SECONDS if ttl is None else min(ttl, PRIVATE_SECONDS)
    return CachePlace((namespace_of(plan.name, task.name), key), ttl)


def _encoded(encoder: TypedEncoder, called: str, value: Any) -> bytes:
    try:
        return encoder.encode(value)
    except Exception as error:  # among them whatever a user's class raises when its attributes are read
        raise KeylessError(f"{called} makes no key: {error}") from error


def _made_key(task: Task, policy: CachePolicy) -> str | bytes:
    """Return the key that the policy's key_func makes of the input."""
    whose = f"the cache policy of node {task.name!r}"
    try:
        made: Any = policy.key_func(task.input) if policy.key_func is not None else None
    except Exception as error:
        add_note(error, f"In the key_func of {whose}")
        raise
    if not isinstance(made, str | bytes):
        raise TypeError(
            f"The key_func of {whose} returned {made!r:.80}: expected str or bytes, "
            f"not {type(made).__name__}. Encode the key as one of these."
        )
    return made


def _format(serde: SerializerProtocol) -> str:
    return f"{type(serde).__module__}.{type(serde).__qualname__} {serde.format}"


def stands_for(value: Any) -> Any:
    """Return a value that identifies a graph which is run as a node; None for anything else."""
    if isinstance(value, ChildGraph):
        return (value.graph, sorted(value.takes or ()), value.returns)
    plan = value if isinstance(value, Plan) else getattr(value, "plan", None)
    if not isinstance(plan, Plan):
        return None
    nodes = [
        (name, spec.action, spec.edges, [(b.name, b.path, dict(b.ends or {})) for b in spec.branches])
        for name, spec in plan.nodes.items()
    ]
    reducers = {
        key: channel.operator
        for key, channel in plan.channels.items()
        if isinstance(channel, BinaryOperatorAggregate)
    }
    return (plan.name, plan.signature, nodes, reducers)
