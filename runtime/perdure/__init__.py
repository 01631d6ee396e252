"""Perdure: an asyncio-native agent runtime with Postgres durability."""

from perdure.checkpoint.memory import InMemorySaver
from perdure.constants import END, START
from perdure.data import Command, Overwrite, PregelTask, Send, StateSnapshot
from perdure.graph.state import StateGraph
from perdure.pregel.graph import Pregel
from perdure.service.recovery import Recovered, recover

__all__ = [
    # describing a graph
    "START",
    "END",
    "StateGraph",
    "Send",
    "Command",
    "Overwrite",
    # running it
    "Pregel",
    # keeping it
    "InMemorySaver",
    "StateSnapshot",
    "PregelTask",
    # going on after a crash
    "recover",
    "Recovered",
]
