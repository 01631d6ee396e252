"""The tree of errors, then the warnings.

    PerdureError
    ├── building a graph
    │   ├── GraphValidationError (ValueError)
    │   └── NodeSignatureError (TypeError)
    ├── drawing a graph
    │   ├── MissingExtraError (ImportError)
    │   └── DrawingError (RuntimeError)
    ├── calling a graph
    │   ├── MissingThreadError (ValueError)
    │   ├── NoCheckpointerError (RuntimeError)
    │   ├── SyncCallError (RuntimeError)
    │   ├── EmptyInputError (ValueError)
    │   └── RecoveryRefusedError (RuntimeError)
    ├── running a graph
    │   ├── InvalidUpdateError (RuntimeError)
    │   ├── EmptyChannelError (RuntimeError)
    │   ├── GraphRecursionError (RecursionError)
    │   ├── NodeCancelledError (RuntimeError)
    │   ├── NodeTimeoutError (RuntimeError)
    │   ├── StoredError (RuntimeError)
    │   ├── NotInNodeError (RuntimeError)
    │   ├── MissingNodeError (RuntimeError)
    │   ├── StreamOverflowError (RuntimeError)
    │   ├── ThreadBusyError (RuntimeError)
    │   ├── OrphanTakenError (RuntimeError)
    │   └── StaleRunError (RuntimeError)
    ├── storing values
    │   ├── UnserializableValueError (TypeError)
    │   └── InvalidPayloadError (ValueError)
    └── the back end
        ├── SaverUnavailableError (ConnectionError)
        ├── SaverTimeoutError (TimeoutError)
        └── SchemaError (RuntimeError)

A node's own exception is not in this tree. It reaches the caller unchanged.

Control-flow signals are not in it either. GraphBubbleUp is a BaseException, so `except Exception` in a node
does not swallow it. No public method raises one.
"""

from __future__ import annotations

from typing import Any, Literal

from perdure.data import NodeError as NodeError  # noqa: PLC0414  # not an error; users also look for it here


class PerdureError(Exception):
    """The base of all errors that Perdure raises."""


def failures_of(error: BaseException) -> tuple[BaseException, ...]:
    """Return every failure of the superstep that `error` ended: `error` first, then its siblings' errors.

    try:
        await graph.ainvoke(given)
    except Exception as error:
        for failure in failures_of(error):
            report(failure)
    """
    return (error, *getattr(error, "__perdure_siblings__", ()))


# Building a graph


class GraphValidationError(PerdureError, ValueError):
    """A graph's description is invalid, or a call asks for something that the graph does not have."""


class NodeSignatureError(PerdureError, TypeError):
    """A node, path or reducer has a signature that the engine cannot call."""


# Drawing a graph


class MissingExtraError(PerdureError, ImportError):
    """An optional dependency is not installed. The message names it."""


class DrawingError(PerdureError, RuntimeError):
    """The graph could not be drawn."""


# Calling a graph


class MissingThreadError(PerdureError, ValueError):
    """A call to a graph with a saver names no thread."""


class NoCheckpointerError(PerdureError, RuntimeError):
    """An operation needs a saver, and the graph has none."""


class SyncCallError(PerdureError, RuntimeError):
    """A sync method cannot wait on this thread, or the event loop that it needs has stopped."""


class EmptyInputError(PerdureError, ValueError):
    """A run has neither an input nor anything to resume."""


class RecoveryRefusedError(PerdureError, RuntimeError):
    """This saver or this graph cannot recover orphaned runs."""


# Running a graph


class InvalidUpdateError(PerdureError, RuntimeError):
    """A node returned, or a caller passed, an invalid update of the state."""


class EmptyChannelError(PerdureError, RuntimeError):
    """A channel was read that holds no value."""


class GraphRecursionError(PerdureError, RecursionError):
    """A run reached its recursion limit with tasks left to run."""


class NodeCancelledError(PerdureError, RuntimeError):
    """A node raised CancelledError, but nobody cancelled the run."""


class NodeTimeoutError(PerdureError, RuntimeError):
    """An attempt of a node exceeded its run timeout or its idle timeout.

    Attributes:
        node: name of the node.
        kind: the limit that was exceeded, "run" or "idle".
        timeout: that limit, in seconds.
        run_timeout, idle_timeout: both limits, in seconds; None if not set.
        elapsed: duration of the attempt, in seconds.
    """

    def __init__(
        self,
        node: str,
        kind: Literal["run", "idle"],
        *,
        elapsed: float,
        run_timeout: float | None = None,
        idle_timeout: float | None = None,
    ) -> None:
        self.node = node
        self.kind = kind
        self.timeout = run_timeout if kind == "run" else idle_timeout
        self.run_timeout = run_timeout
        self.idle_timeout = idle_timeout
        self.elapsed = elapsed
        without = "" if kind == "run" else " without making progress"
        super().__init__(
            f"Node {node!r} exceeded its {kind} timeout of {self.timeout:.3f}s{without} "
            f"(elapsed: {elapsed:.3f}s)."
        )


class StoredError(PerdureError, RuntimeError):
    """An error that a node raised before a crash, restored from its stored text (its repr)."""


class NotInNodeError(PerdureError, RuntimeError):
    """A function that works only inside a node was called outside of one."""


class MissingNodeError(PerdureError, RuntimeError):
    """A stored thread has a task for a node that this graph does not have."""


class StreamOverflowError(PerdureError, RuntimeError):
    """A node wrote more events than may wait for the readers of the stream."""


class ThreadBusyError(PerdureError, RuntimeError):
    """Another run holds the claim on the thread. The message names that run and the time of its claim."""


class OrphanTakenError(PerdureError, RuntimeError):
    """The orphaned run has ended, or another process is continuing it."""


class StaleRunError(PerdureError, RuntimeError):
    """This run lost its claim on the thread to another run. Nothing that it wrote since was stored."""


# Control flow


class GraphBubbleUp(BaseException):
    """The base of control-flow signals, which end a node and are not errors."""


class ParentCommand(GraphBubbleUp):  # not an error
    """A Command on its way to a graph around the node's own.

    A node may raise it instead of returning the Command.

    Attributes:
        command: the Command, or a list of Commands if there are several.
        target: the task of the outer graph that receives the Command, once resolved.
    """

    def __init__(self, command: Any, *, target: object | None = None) -> None:
        super().__init__(command)
        self.command = command
        self.target = target


# Storing values


class UnserializableValueError(PerdureError, TypeError):
    """A value cannot be stored without altering it. The message names the state key and the remedy."""


class InvalidPayloadError(PerdureError, ValueError):
    """Stored bytes are not a valid stored value."""


# The back end


class SaverUnavailableError(PerdureError, ConnectionError):
    """The saver's database cannot be reached. The message names the host and the reason."""


class SaverTimeoutError(PerdureError, TimeoutError):
    """The saver's database answered too late, or its pool had no free connection."""


class SchemaError(PerdureError, RuntimeError):
    """The database schema is missing, too old or too new for this code."""


# Warnings


class PerdureWarning(UserWarning):
    """The base of all warnings that Perdure gives."""


class InvalidUpdateWarning(PerdureWarning):
    """An update writes to a key that the state does not have."""


class PerdureDeprecationWarning(PerdureWarning, DeprecationWarning):
    """An old name was used. It still works; the message gives the new one."""


class GraphStructureWarning(PerdureWarning):
    """The graph's structure is probably a mistake. With `strict=True` it is an error."""


class InPlaceChangeWarning(PerdureWarning):
    """With debug on: a node changed its input in place and did not return the change."""


class UnfencedSaverWarning(PerdureWarning):
    """The saver has no leases, so two runs on one thread are not kept apart."""
