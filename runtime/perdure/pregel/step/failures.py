"""Several failures at once, errors beside signals, and the notes that errors carry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from perdure.errors import GraphBubbleUp, failures_of


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an error, even if its class lets nobody set attributes."""
    notes = getattr(error, "__notes__", None)
    if isinstance(notes, list):
        notes.append(note)
    else:
        object.__setattr__(error, "__notes__", [note])


def unwrapped(error: BaseException) -> BaseException:
    """Return the signal in an error group that holds nothing else; else the error, without its signals."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    signals, errors = error.split(GraphBubbleUp)
    if signals is None:
        return error
    return errors or next(leaves(signals))


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors in a group and in the groups inside it; an error that is no group, itself."""
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from leaves(part)
    else:
        yield error


def first_failure(failures: Sequence[tuple[str, BaseException]]) -> BaseException:
    """Return the failure that stops a run, with the others attached.

    It is the first error. A signal counts only where there is no error, and before both comes what ends
    programs, such as KeyboardInterrupt.

    Args:
        failures: pairs of a node's name and what it raised, the first one first.
    """
    _, first = min(failures, key=lambda pair: _rank(pair[1]))
    attach(first, [(name, error) for name, error in failures if not isinstance(error, GraphBubbleUp)])
    return first


def _rank(error: BaseException) -> int:
    if isinstance(error, GraphBubbleUp):
        return 2
    return 1 if isinstance(error, Exception) else 0


def attach(first: BaseException, others: Iterable[tuple[str, BaseException]]) -> None:
    """Attach the other errors of a superstep to the first, for `failures_of` and as notes with the node."""
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
