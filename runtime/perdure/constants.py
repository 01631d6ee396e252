"""Names that users see and the engine writes: virtual nodes, control channels, separators."""

from __future__ import annotations

import enum
from typing import Final

START: Final = "__start__"
"""The virtual node that receives a run's input; also the name of the input channel."""

END: Final = "__end__"
"""The virtual node that a finished path leads to."""

INPUT: Final = "__input__"
"""The pseudo node that input writes are attributed to."""

ROOT: Final = "__root__"
"""The channel of a state that is one bare value."""

TASKS: Final = "__pregel_tasks"
"""The channel that holds the Sends of the next superstep."""

ERROR: Final = "__error__"
ERROR_SOURCE: Final = "__error_source_node__"
"""Stored beside the error of a node that has an error handler: that one goes on, not the node."""

ERROR_HANDLER: Final = "node_error_handler"
"""The last part of the path of a task that handles another one's error."""

INTERRUPT: Final = "__interrupt__"
RESUME: Final = "__resume__"
SCHEDULED: Final = "__scheduled__"
NO_WRITES: Final = "__no_writes__"
"""Stored for a task that finished without writing, so that it is not run again."""

PULL: Final = "__pregel_pull"
PUSH: Final = "__pregel_push"

RESERVED_SLOTS: Final = {ERROR: -1, SCHEDULED: -2, INTERRUPT: -3, RESUME: -4, ERROR_SOURCE: -5}
"""The fixed index of a control write among a task's pending writes; stored again, it is overwritten."""

RESERVED_NODE_NAMES: Final = frozenset(
    {START, END, INPUT, "__copy__", TASKS, ERROR, ERROR_SOURCE, INTERRUPT, RESUME, SCHEDULED}
    | {NO_WRITES, "__return__", "__previous__", PULL, PUSH, "configurable"}
)

ERROR_HANDLER_PREFIX: Final = "__error_handler__"
"""With the name of a node after it: the hidden node that handles its errors."""

DEFAULT_ERROR_HANDLER: Final = "__default_error_handler__"
"""The hidden node that handles the errors of nodes without a handler of their own."""

NAMESPACE_SEPARATOR: Final = "|"
NAMESPACE_END: Final = ":"

DEFAULT_GRAPH_NAME: Final = "LangGraph"
"""What a graph is called that was compiled without a name."""

DEFAULT_RECURSION_LIMIT: Final = 10_007


class Missing(enum.Enum):
    """The type of MISSING, so that type checkers can tell it from every value."""

    MISSING = "MISSING"

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING: Final = Missing.MISSING
"""Stands for "no value" where None is a value."""


BRANCH: Final = "branch:to:"
JOIN: Final = "join:"
"""What the names of the channels begin with that a graph makes to start its nodes."""


def branch_channel(node: str) -> str:
    """The channel whose availability starts `node`."""
    return f"{BRANCH}{node}"


def is_trigger(channel: str) -> bool:
    """Whether a graph made this channel to start a node."""
    return channel.startswith((BRANCH, JOIN))


def join_channel(starts: tuple[str, ...], end: str) -> str:
    """The barrier that starts `end` when every one of `starts` has finished."""
    return f"{JOIN}{'+'.join(starts)}:{end}"
