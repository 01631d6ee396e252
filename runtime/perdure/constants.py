"""Reserved names: virtual nodes, control channels, control writes, separators."""

from __future__ import annotations

import enum
from typing import Final

START: Final = "__start__"
"""The virtual node that receives a run's input. The input channel has this name, too."""

END: Final = "__end__"
"""The virtual node at which a path through the graph ends."""

INPUT: Final = "__input__"
"""The pseudo node that is recorded as the author of input writes."""

ROOT: Final = "__root__"
"""The only channel of a state that is one value without keys."""

TASKS: Final = "__pregel_tasks"
"""The channel that holds the Sends of the next superstep."""

ERROR: Final = "__error__"
ERROR_SOURCE: Final = "__error_source_node__"
"""A mark stored beside a node's error: after a crash its error handler runs again, not the node."""

ERROR_HANDLER: Final = "node_error_handler"
"""The last part of the path of a task that handles another task's error."""

INTERRUPT: Final = "__interrupt__"
RESUME: Final = "__resume__"
SCHEDULED: Final = "__scheduled__"
NO_WRITES: Final = "__no_writes__"
"""A write stored for a task that finished without writing, so that it does not run again."""

PULL: Final = "__pregel_pull"
PUSH: Final = "__pregel_push"

RESERVED_SLOTS: Final = {ERROR: -1, SCHEDULED: -2, INTERRUPT: -3, RESUME: -4, ERROR_SOURCE: -5}
"""The fixed index of each control write among a task's pending writes. Storing it again overwrites it."""

RESERVED_NODE_NAMES: Final = frozenset(
    {START, END, INPUT, "__copy__", TASKS, ERROR, ERROR_SOURCE, INTERRUPT, RESUME, SCHEDULED}
    | {NO_WRITES, "__return__", "__previous__", PULL, PUSH, "configurable"}
)

ERROR_HANDLER_PREFIX: Final = "__error_handler__"
"""The prefix of the hidden node that handles one node's errors. The node's name follows."""

DEFAULT_ERROR_HANDLER: Final = "__default_error_handler__"
"""The hidden node that handles the errors of nodes without a handler of their own."""

NAMESPACE_SEPARATOR: Final = "|"
NAMESPACE_END: Final = ":"

DEFAULT_GRAPH_NAME: Final = "LangGraph"
"""The name of a graph that was compiled without one."""

DEFAULT_RECURSION_LIMIT: Final = 10_007


class Missing(enum.Enum):
    """The type of MISSING, so that type checkers can tell it from every value."""

    MISSING = "MISSING"

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING: Final = Missing.MISSING
"""The absence of a value, where None is a value."""


BRANCH: Final = "branch:to:"
JOIN: Final = "join:"
"""The prefixes of trigger channels: the channels that a graph makes to start its nodes."""


def branch_channel(node: str) -> str:
    """Return the name of the channel that triggers `node`."""
    return f"{BRANCH}{node}"


def is_trigger(channel: str) -> bool:
    """Return True if a graph made this channel to start a node."""
    return channel.startswith((BRANCH, JOIN))


def join_channel(starts: tuple[str, ...], end: str) -> str:
    """Return the name of the barrier that triggers `end` once all of `starts` have finished."""
    return f"{JOIN}{'+'.join(starts)}:{end}"
