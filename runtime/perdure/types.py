"""Plain data of the public surface, under the name by which it is known."""

from perdure.data import Command, Durability, Overwrite, PregelTask, Send, StateSnapshot, StreamMode

__all__ = [
    "Command",
    "Durability",
    "Overwrite",
    "PregelTask",
    "Send",
    "StateSnapshot",
    "StreamMode",
]
