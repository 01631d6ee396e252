"""Plain data of the public surface, under its usual module name."""

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
from perdure.pregel.plan.retry import default_retry_on

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
    "default_retry_on",
]
