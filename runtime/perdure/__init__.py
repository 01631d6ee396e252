"""Perdure: an asyncio-native agent runtime with Postgres durability."""

from perdure.cache.memory import InMemoryCache
from perdure.checkpoint.memory import InMemorySaver
from perdure.config import RunnableConfig, get_config, get_store, get_stream_writer
from perdure.constants import END, START
from perdure.data import (
    CachePolicy,
    Command,
    NodeError,
    Overwrite,
    PregelTask,
    RetryPolicy,
    Send,
    StateSnapshot,
    StreamWriter,
    TimeoutPolicy,
)
from perdure.errors import (
    DrawingError,
    EmptyChannelError,
    EmptyInputError,
    GraphRecursionError,
    GraphStructureWarning,
    GraphValidationError,
    InPlaceChangeWarning,
    InvalidPayloadError,
    InvalidUpdateError,
    InvalidUpdateWarning,
    MissingExtraError,
    MissingNodeError,
    MissingThreadError,
    NoCheckpointerError,
    NodeCancelledError,
    NodeSignatureError,
    NodeTimeoutError,
    NotInNodeError,
    OrphanTakenError,
    PerdureDeprecationWarning,
    PerdureError,
    PerdureWarning,
    RecoveryRefusedError,
    SaverTimeoutError,
    SaverUnavailableError,
    SchemaError,
    StaleRunError,
    StoredError,
    StreamOverflowError,
    SyncCallError,
    ThreadBusyError,
    UnfencedSaverWarning,
    UnserializableValueError,
    failures_of,
)
from perdure.graph.state import CompiledStateGraph, StateGraph
from perdure.managed import IsLastStep, RemainingSteps
from perdure.pregel.graph import Pregel
from perdure.pregel.plan.builder import NodeBuilder
from perdure.pregel.plan.retry import default_retry_on
from perdure.runtime import Runtime, get_runtime
from perdure.service.recovery import Recovered, recover

__all__ = [
    # describing a graph
    "START",
    "END",
    "StateGraph",
    "Send",
    "Command",
    "Overwrite",
    "IsLastStep",
    "RemainingSteps",
    # how its nodes run
    "RetryPolicy",
    "default_retry_on",
    "TimeoutPolicy",
    "CachePolicy",
    "InMemoryCache",
    "NodeError",
    # inside a node
    "Runtime",
    "StreamWriter",
    "get_runtime",
    "get_config",
    "get_store",
    "get_stream_writer",
    # running it
    "CompiledStateGraph",
    "RunnableConfig",
    # keeping it
    "InMemorySaver",
    "StateSnapshot",
    "PregelTask",
    # going on after a crash
    "recover",
    "Recovered",
    # the layer below
    "Pregel",
    "NodeBuilder",
    # errors: the base of all, and what failed beside the one that was raised
    "PerdureError",
    "failures_of",
    # errors: building a graph, and drawing it
    "GraphValidationError",
    "NodeSignatureError",
    "MissingExtraError",
    "DrawingError",
    # errors: calling it
    "MissingThreadError",
    "NoCheckpointerError",
    "SyncCallError",
    "EmptyInputError",
    "RecoveryRefusedError",
    # errors: running it
    "InvalidUpdateError",
    "EmptyChannelError",
    "GraphRecursionError",
    "NodeCancelledError",
    "NodeTimeoutError",
    "StreamOverflowError",
    "StoredError",
    "NotInNodeError",
    "MissingNodeError",
    "ThreadBusyError",
    "OrphanTakenError",
    "StaleRunError",
    # errors: storing values
    "UnserializableValueError",
    "InvalidPayloadError",
    "SaverUnavailableError",
    "SaverTimeoutError",
    "SchemaError",
    # warnings
    "PerdureWarning",
    "InvalidUpdateWarning",
    "PerdureDeprecationWarning",
    "GraphStructureWarning",
    "InPlaceChangeWarning",
    "UnfencedSaverWarning",
]
