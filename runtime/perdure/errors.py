"""What can go wrong, as a tree.

    PerdureError
    ├── building a graph
    │   ├── GraphValidationError (ValueError)
    │   └── NodeSignatureError (TypeError)
    ├── drawing it
    │   ├── MissingExtraError (ImportError)
    │   └── DrawingError (RuntimeError)
    ├── calling it
    │   ├── MissingThreadError (ValueError)
    │   ├── NoCheckpointerError (RuntimeError)
    │   ├── SyncCallError (RuntimeError)
    │   ├── EmptyInputError (ValueError)
    │   └── RecoveryRefusedError (RuntimeError)
    ├── running it
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
    ├── values on their way to disk and back
    │   ├── UnserializableValueError (TypeError)
    │   └── InvalidPayloadError (ValueError)
    └── the back end
        ├── SaverUnavailableError (ConnectionError)
        ├── SaverTimeoutError (TimeoutError)
        └── SchemaError (RuntimeError)

A node's own exception is in none of these: it reaches the caller as itself. Control flow is in none of
them either: GraphBubbleUp is a BaseException, so that `except Exception` in a node does not swallow it,
and it leaves no public method.
"""

from __future__ import annotations

from typing import Any, Literal

from perdure.data import NodeError as NodeError  # noqa: PLC0414  # no error, but looked for here too


class PerdureError(Exception):
    """The base of every error that Perdure itself raises."""


def failures_of(error: BaseException) -> tuple[BaseException, ...]:
    """All that failed in the superstep that `error` stopped: `error` itself, then what its siblings raised.

    try:
        await graph.ainvoke(given)
    except Exception as error:
        for failure in failures_of(error):
            report(failure)
    """
    return (error, *getattr(error, "__perdure_siblings__", ()))


# Building a graph


class GraphValidationError(PerdureError, ValueError):
    """The graph as described cannot be compiled."""


class NodeSignatureError(PerdureError, TypeError):
    """A node, router or reducer cannot be called the way the engine would call it."""


# Drawing it


class MissingExtraError(PerdureError, ImportError):
    """What was asked for needs something optional that is not installed; the message says what."""


class DrawingError(PerdureError, RuntimeError):
    """A picture of the graph could not be made."""


# Calling it


class MissingThreadError(PerdureError, ValueError):
    """A graph with a saver was called without saying which thread."""


class NoCheckpointerError(PerdureError, RuntimeError):
    """Something was asked for that only a graph with a saver can do."""


class SyncCallError(PerdureError, RuntimeError):
    """A sync method was called where it cannot wait, or belongs to an event loop that has stopped."""


class EmptyInputError(PerdureError, ValueError):
    """There is no input and nothing to resume."""


class RecoveryRefusedError(PerdureError, RuntimeError):
    """Orphaned runs cannot be recovered through this saver or this graph."""


# Running it


class InvalidUpdateError(PerdureError, RuntimeError):
    """A node returned, or a caller sent, something that is not an update of this state."""


class EmptyChannelError(PerdureError, RuntimeError):
    """A channel was read before anything was written to it."""


class GraphRecursionError(PerdureError, RecursionError):
    """The recursion limit was used up while there was still work to do."""


class NodeCancelledError(PerdureError, RuntimeError):
    """Code inside a node raised CancelledError although nobody cancelled the run."""


class NodeTimeoutError(PerdureError, RuntimeError):
    """An attempt of a node took too long, or made no progress for too long.

    Attributes:
        node: which.
        kind: which limit it was, "run" or "idle".
        timeout: that limit, in seconds.
        run_timeout, idle_timeout: both limits, None where there is none.
        elapsed: how long the attempt had run, in seconds.
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
    """What a node raised in an earlier run, known only as the text that was stored: its repr."""


class NotInNodeError(PerdureError, RuntimeError):
    """Something that only a node can ask for was asked for outside of one."""


class MissingNodeError(PerdureError, RuntimeError):
    """A stored thread waits on a node that this graph does not have."""


class StreamOverflowError(PerdureError, RuntimeError):
    """A node put more events into the stream than may wait for their readers."""


class ThreadBusyError(PerdureError, RuntimeError):
    """Another run holds the thread; the message says which, and since when."""


class OrphanTakenError(PerdureError, RuntimeError):
    """The run that was to be continued has ended, or somebody else continues it."""


class StaleRunError(PerdureError, RuntimeError):
    """This run lost its thread to another one; nothing it wrote since was stored."""


# Control flow


class GraphBubbleUp(BaseException):
    """The base of what ends a node without being an error."""


class ParentCommand(GraphBubbleUp):  # not an error
    """A node returned a Command for a graph around its own.

    Raised by a node, it means the same as the Command returned.

    Attributes:
        command: the Command; a list of them if several nodes, or a node with several, returned one.
        target: the task whose node the Command is for, once that is found out.
    """

    def __init__(self, command: Any) -> None:
        super().__init__(command)
        self.command = command
        self.target: object | None = None


# Values on their way to disk and back


class UnserializableValueError(PerdureError, TypeError):
    """A value cannot be stored without altering it; the message names the state key and the remedy."""


class InvalidPayloadError(PerdureError, ValueError):
    """Stored bytes do not say what a stored value may say."""


# The back end


class SaverUnavailableError(PerdureError, ConnectionError):
    """The saver's database did not answer; the message says which host and why."""


class SaverTimeoutError(PerdureError, TimeoutError):
    """The saver's database answered too late, or had no connection to spare."""


class SchemaError(PerdureError, RuntimeError):
    """The saver's schema is missing, or older or newer than the code."""


# Warnings


class PerdureWarning(UserWarning):
    """The base of every warning that Perdure itself gives."""


class InvalidUpdateWarning(PerdureWarning):
    """An update names a key that the state does not have."""


class PerdureDeprecationWarning(PerdureWarning, DeprecationWarning):
    """A name that still works, and what to write in its place."""


class GraphStructureWarning(PerdureWarning):
    """The graph as described would probably not run as it was meant to; with strict=True, an error."""


class InPlaceChangeWarning(PerdureWarning):
    """With debug on: a node changed in place what it was given, and did not return it."""


class UnfencedSaverWarning(PerdureWarning):
    """The saver has no leases: two runs at once on one thread are not kept apart."""
