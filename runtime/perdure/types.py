"""Plain data of the public surface, under the name by which it is known."""

from perdure.data import (
    CachePolicy,
    Command,
    Durability,
    NodeError,
    Overwrite,
    PregelTask,
    RetryPolicy,
    Send,
    StateSnapshot,
    StreamMode,
    StreamWriter,
    TimeoutPolicy,
)

__all__ = [
    "CachePolicy",
    "Command",
    "Durability",
    "NodeError",
    "Overwrite",
    "PregelTask",
    "RetryPolicy",
    "Send",
    "StateSnapshot",
    "StreamMode",
    "StreamWriter",
    "TimeoutPolicy",
]
