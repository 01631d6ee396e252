"""NodeBuilder: the description of a node of a Pregel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, Self

from perdure.constants import MISSING
from perdure.data import CachePolicy, RetryPolicy, TimeoutPolicy
from perdure.errors import GraphValidationError, NodeSignatureError
from perdure.pregel.plan.callables import calling_of, check_callable
from perdure.pregel.plan.plan import Calling, child_of
from perdure.pregel.plan.policies import Timeout, checked_cache_policy, retry_policies, timeout_policy
from perdure.pregel.plan.runnables import Invokes, InvokesAsync, invocation_of, is_runnable

_A_NODE: Final = "a node"


class ChannelWrite(NamedTuple):
    """A write that a node makes to a channel.

    Attributes:
        make: a function that makes the value of the node's result; MISSING writes nothing.
    """

    channel: str
    make: Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PregelNode:
    """A node of a Pregel, as described; NodeBuilder makes it.

    Attributes:
        triggers: channels; a new write to any of them starts the node.
        channels: the channels that it reads as a dict, or the one that it reads as a bare value.
        action: a function of the input; None: the input is the result.
        calling: the way in which the action is called.
        writes: the writes that are made of its result.
    """

    triggers: tuple[str, ...]
    channels: str | tuple[str, ...]
    action: Callable[[Any], Any] | None = None
    calling: Calling = Calling.INPUT
    writes: tuple[ChannelWrite, ...] = ()
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    retry_policies: tuple[RetryPolicy, ...] = ()
    cache_policy: CachePolicy | None = None
    timeout: TimeoutPolicy | None = None


class NodeBuilder:
    """A builder that describes one node of a Pregel, call by call; each returns the builder.

    Example:
        >>> double = NodeBuilder().subscribe_only("x").do(lambda x: 2 * x).write_to("y")
    """

    __slots__ = (
        "_action",
        "_bare",
        "_cache_policy",
        "_calling",
        "_metadata",
        "_reads",
        "_retry_policies",
        "_tags",
        "_timeout",
        "_triggers",
        "_writes",
    )

    def __init__(self) -> None:
        self._triggers: list[str] = []
        self._reads: list[str] = []
        self._bare: str | None = None
        self._action: Callable[[Any], Any] | None = None
        self._calling = Calling.INPUT
        self._writes: list[ChannelWrite] = []
        self._tags: list[str] = []
        self._metadata: dict[str, Any] = {}
        self._retry_policies: list[RetryPolicy] = []
        self._cache_policy: CachePolicy | None = None
        self._timeout: TimeoutPolicy | None = None

    def subscribe_only(self, channel: str) -> Self:
        """Run whenever this channel is written, on its bare value. The node then reads nothing else."""
        if self._triggers or self._reads:
            raise GraphValidationError(
                f"Cannot subscribe only to channel {channel!r}: the node already reads, or subscribes to, "
                f"{', '.join(self._triggers + self._reads)}. Use subscribe_to for all of them."
            )
        self._bare = channel
        self._triggers.append(channel)
        return self

    def subscribe_to(self, *channels: str, read: bool = True) -> Self:
        """Run whenever any of these channels is written.

        Args:
            read: whether they are part of the node's input, a dict.
        """
        self._refuse_beside_only(channels)
        self._triggers.extend(channels)
        if read:
            self._reads.extend(channels)
        return self

    def read_from(self, *channels: str) -> Self:
        """Add these channels to the node's input, a dict, where they have a value."""
        self._refuse_beside_only(channels)
        self._reads.extend(channels)
        return self

    def _refuse_beside_only(self, channels: tuple[str, ...]) -> None:
        if self._bare is not None:
            raise GraphValidationError(
                f"Cannot add {', '.join(map(repr, channels))}: the node subscribes only to {self._bare!r}, "
                "and its bare value is the input. Use subscribe_to in place of subscribe_only."
            )

    def do(self, action: Callable[[Any], object] | Invokes | InvokesAsync) -> Self:
        """Call this action with the node's input. Without an action, the input is the result.

        Args:
            action: a sync or async function of one argument, or an object with `ainvoke` or `invoke`, such
                as another graph. Sync ones run in a worker thread.
        """
        if self._action is not None:
            raise GraphValidationError(
                f"The node already does {self._action!r}; a node has one action. Call one from the other, or "
                "write to a channel that a second node subscribes to."
            )
        self._action, self._calling = _called(action)
        return self

    def write_to(self, *channels: str, **values: object) -> Self:
        """Write the node's result to these channels, unless it is None.

        Args:
            values: more values by channel. A function is called with the result, and its own result is
                written unless it is None. Anything else is written as it is.
        """
        self._writes.extend(ChannelWrite(channel, _unless_none) for channel in channels)
        for channel, value in values.items():
            if callable(value):
                if calling_of(value) is Calling.COROUTINE:
                    raise NodeSignatureError(
                        f"The value for channel {channel!r} is made by {value!r}, which is async. It is "
                        "called in place and must be sync: await in the node's action."
                    )
                self._writes.append(ChannelWrite(channel, partial(_made_by, value)))
            else:
                self._writes.append(ChannelWrite(channel, partial(_constant, value)))
        return self

    def meta(self, *tags: str, **metadata: Any) -> Self:
        """Add tags and metadata to the config that the node runs under."""
        self._tags.extend(tags)
        self._metadata.update(metadata)
        return self

    def add_retry_policies(self, *policies: RetryPolicy) -> Self:
        """Set the retry policies, in place of the graph's; the first one that matches an error decides."""
        self._retry_policies.extend(retry_policies(_A_NODE, policies) or ())
        return self

    def add_cache_policy(self, policy: CachePolicy) -> Self:
        """Use results again for equal inputs; in place of the graph's policy."""
        self._cache_policy = checked_cache_policy(_A_NODE, policy)
        return self

    def set_timeout(self, timeout: Timeout) -> Self:
        """Bound each attempt: a number is seconds from its beginning to its end; None: no bound."""
        self._timeout = timeout_policy(_A_NODE, timeout)
        return self

    def build(self) -> PregelNode:
        """Return the node as described so far."""
        return PregelNode(
            triggers=tuple(dict.fromkeys(self._triggers)),
            channels=tuple(dict.fromkeys(self._reads)) if self._bare is None else self._bare,
            action=self._action,
            calling=self._calling,
            writes=tuple(self._writes),
            tags=tuple(dict.fromkeys(self._tags)),
            metadata=dict(self._metadata),
            retry_policies=tuple(self._retry_policies),
            cache_policy=self._cache_policy,
            timeout=self._timeout,
        )


def _called(action: object) -> tuple[Callable[[Any], Any], Calling]:
    """Return the function to call for an action, and the way to call it.

    Raises:
        GraphValidationError: the action can be neither called nor run.
        NodeSignatureError: it cannot be called with one argument.
    """
    child = child_of(action)
    if child is not None:
        return child.run, Calling.COROUTINE
    if is_runnable(action):
        call, calling, _ = invocation_of(action)
        return call, calling
    if not callable(action):
        raise GraphValidationError(
            f"The action {action!r} of a node is not a function, and has neither `ainvoke` nor `invoke`."
        )
    check_callable(
        f"The action {action!r} of a node",
        action,
        given="what the node reads",
        remedy="perdure.runtime has get_config and get_runtime for the rest.",
    )
    return action, calling_of(action)


def _unless_none(result: object) -> object:
    return MISSING if result is None else result


def _made_by(make: Callable[[object], object], result: object) -> object:
    return _unless_none(make(result))


def _constant(value: object, _: object) -> object:
    return value
