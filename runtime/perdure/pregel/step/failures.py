"""Failures: several at once, errors mixed with signals, and the notes that errors carry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from perdure.errors import GraphBubbleUp, failures_of


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an error, even if its class forbids to set attributes."""
    notes = getattr(error, "__notes__", None)
    if isinstance(notes, list):
        notes.append(note)
    else:
        object.__setattr__(error, "__notes__", [note])


def unwrapped(error: BaseException) -> BaseException:
    """Reduce an error group that contains signals.

    Returns:
        The first signal of a group that contains only signals; a group that also contains errors, without
        its signals; any other error as it is.
    """
    if not isinstance(error, BaseExceptionGroup):
        return error
    signals, errors = error.split(GraphBubbleUp)
    if signals is None:
        return error
    return errors or next(leaves(signals))


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors in a group and in its inner groups. Yield an error that is not a group as it is."""
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from leaves(part)
    else:
        yield error


def first_failure(failures: Sequence[tuple[str, BaseException]]) -> BaseException:
    """Return the failure that stops a run, with the other failures attached.

    An exception that ends programs, such as KeyboardInterrupt, comes before all errors, and an error comes
    before all signals. Among equals, the first one is returned.

    Args:
        failures: pairs of a node's name and its exception, in the order in which they were raised.
    """
    _, first = min(failures, key=lambda pair: _rank(pair[1]))
    attach(first, [(name, error) for name, error in failures if not isinstance(error, GraphBubbleUp)])
    return first


def _rank(error: BaseException) -> int:
    if isinstance(error, GraphBubbleUp):
        return 2
    return 1 if isinstance(error, Exception) else 0


def attach(first: BaseException, others: Iterable[tuple[str, BaseException]]) -> None:
    """Attach the other errors of a superstep to the first: for `failures_of`, and as notes with the node."""
    siblings = list(failures_of(first)[1:])
    known = {id(first), *map(id, siblings)}
    for name, error in others:
        if id(error) not in known:
            add_note(first, f"In the same superstep, node {name!r} failed too: {error!r}")
        for each in failures_of(error):
            if id(each) not in known:
                known.add(id(each))
                siblings.append(each)
    if siblings:
        object.__setattr__(first, "__perdure_siblings__", tuple(siblings))
