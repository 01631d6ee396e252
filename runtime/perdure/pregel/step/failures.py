"""What is said of failures, and what counts as one: errors beside signals, several at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from perdure.errors import GraphBubbleUp, failures_of
from perdure.pregel.step.task import Task


def add_note(error: BaseException, note: str) -> None:
    """`error.add_note(note)`, also for an error whose class lets nobody set attributes."""
    notes = getattr(error, "__notes__", None)
    if isinstance(notes, list):
        notes.append(note)
    else:
        object.__setattr__(error, "__notes__", [note])


def unwrapped(error: BaseException) -> BaseException:
    """The signal in `error`, if it counts; else `error`, without any signals that it holds."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    signals, errors = error.split(GraphBubbleUp)
    if signals is None:
        return error
    return errors or next(leaves(signals))


def leaves(error: BaseException) -> Iterator[BaseException]:
    """What a group, and the groups in it, are made of; an error that is none, itself."""
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from leaves(part)
    else:
        yield error


def first_failure(failed: Sequence[Task]) -> BaseException:
    """What stops a run whose tasks failed in this order, with what the others raised attached.

    That is the first error; but a signal only if there is no error, and before both what ends programs.
    """
    errors = [(task.name, task.error) for task in failed if task.error is not None]
    _, first = min(errors, key=lambda pair: _rank(pair[1]))
    attach(first, [(name, error) for name, error in errors if not isinstance(error, GraphBubbleUp)])
    return first


def _rank(error: BaseException) -> int:
    if isinstance(error, GraphBubbleUp):
        return 2
    return 1 if isinstance(error, Exception) else 0


def attach(first: BaseException, others: Iterable[tuple[str, BaseException]]) -> None:
    """Let `failures_of(first)`, and its notes, tell what else was raised in its superstep, by which node."""
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
