"""Debug output: each superstep is printed, and changes that nodes make in place are found.

Nothing here runs unless debug is on.
"""

from __future__ import annotations

import dataclasses
import reprlib
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple, assert_never

from pydantic import BaseModel

from perdure.constants import BRANCH, START, TASKS, is_trigger
from perdure.errors import InPlaceChangeWarning
from perdure.pregel.events.facts import Fact, SuperstepApplied, TaskEnded, TaskStarted
from perdure.pregel.step.outcome import (
    Failed,
    Finished,
    Left,
    Outcome,
    Stopped,
    Waiting,
    still_to_run,
)
from perdure.pregel.step.task import Task

_VALUES = (str, bytes, int, float, bool, complex, type(None))


class Printer:
    """The printer of one run, superstep by superstep. It also finds what nodes change in place."""

    __slots__ = ("_ended", "_given", "_graph", "_state_keys", "_tasks", "_title")

    def __init__(self, graph: str, state_keys: Set[str]) -> None:
        self._graph = graph
        self._state_keys = state_keys
        self._tasks: list[Task] = []
        self._ended: list[Outcome] = []
        self._given: list[tuple[Task, list[_Part]]] = []
        self._title = ""

    def tell(self, fact: Fact) -> None:
        """Print the part of a fact that a person wants to know."""
        match fact:
            case TaskStarted(task):
                self._started(task)
            case TaskEnded(outcome):
                self._end(outcome)
            case SuperstepApplied(changed=changed) if self._title:
                keys = sorted(self._state_keys & (changed or set()))
                self._say(f"changed: {', '.join(keys) or 'nothing'}")
            case _:
                pass

    def _started(self, task: Task) -> None:
        self._tasks.append(task)
        if task.name != START:
            self._given.append((task, list(_inside(task.input))))
        self._say_given(task)

    def _say_given(self, task: Task, more: str = "") -> None:
        superstep = task.superstep
        below = f" in {superstep.namespace.text}" if superstep.namespace.text else ""
        self._title = f"[{self._graph}{below} step {superstep.step}]"
        self._say(f"{task.name} is given {_short(task.input)}{more}")

    def _end(self, outcome: Outcome) -> None:
        """Print a superstep's outcomes once all its tasks have ended."""
        if isinstance(outcome, Finished) and outcome.restored:
            self._say_given(outcome.task, " (finished before; its stored writes are used)")
            return
        self._ended.append(outcome)
        if still_to_run(self._tasks, self._ended):
            return
        place = {task: index for index, task in enumerate(self._tasks)}
        for ended in sorted(self._ended, key=lambda each: place.get(each.task, len(place))):
            self._say(f"{ended.task.name} {_told(ended)}")
        for change, tasks in self._changes().items():
            _warn(change, tasks)
        self._tasks, self._ended, self._given = [], [], []

    def _changes(self) -> dict[_Change, list[Task]]:
        """Return the values that were changed in place but not returned, with the tasks that had them."""
        written = [value for outcome in self._ended for _, value in outcome.writes]
        returned = {id(part.value) for part in _inside(written)}
        changes: dict[_Change, list[Task]] = {}
        for task, given in self._given:
            for part in given:
                if id(part.value) not in returned and not part.unchanged():
                    change = _Change(id(part.value), part.path, type(part.value).__name__)
                    changes.setdefault(change, []).append(task)
        return changes

    def _say(self, line: str) -> None:
        print(f"{self._title} {line}")  # noqa: T201  # the purpose of debug


def _told(outcome: Outcome) -> str:
    match outcome:
        case Finished():
            return f"wrote {_wrote(outcome.writes)}"
        case Failed():
            return f"failed: {_short(outcome.error)}"
        case Waiting():
            return f"waits: {_short(outcome.signal)}"
        case Left():
            return f"left for a graph around: {_short(outcome.command.command)}"
        case Stopped():
            return "was stopped"
        case _:
            assert_never(outcome)


class _Change(NamedTuple):
    identity: int
    path: str
    kind: str


class _Part(NamedTuple):
    """A changeable value inside an input, and its contents before the node ran."""

    path: str
    value: Any
    held: list[tuple[Any, Any]]

    def unchanged(self) -> bool:
        now = list(_held(self.value))
        return len(now) == len(self.held) and all(
            _same(key, before) and _same(value, held)
            for (key, value), (before, held) in zip(now, self.held, strict=True)
        )


def _inside(given: Any) -> Iterator[_Part]:
    """Yield every changeable value inside an input. The mapping or object around them is the node's own."""
    todo: deque[tuple[str, Any]] = deque([("", given)])
    seen: set[int] = set()
    while todo:
        path, value = todo.popleft()
        if id(value) in seen:
            continue
        held = list(_held(value))
        if held or _is_changeable(value):
            seen.add(id(value))
        if _is_changeable(value) and (path or not (isinstance(value, dict) or _has_fields(value))):
            yield _Part(path, value, held)
        todo.extend((f"{path}{_step(value, key)}", part) for key, part in held)


def _is_changeable(value: Any) -> bool:
    if isinstance(value, list | dict | set | deque | bytearray):
        return True
    return _has_fields(value)


def _has_fields(value: Any) -> bool:
    return isinstance(value, BaseModel) or (dataclasses.is_dataclass(value) and not isinstance(value, type))


def _held(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return the parts of a value, by key, index or attribute."""
    match value:
        case dict():
            return value.items()
        case list() | tuple() | deque():
            return enumerate(value)
        case set() | frozenset():
            return enumerate(sorted(value, key=id))
        case bytearray():
            return [(0, bytes(value))]
        case _ if _has_fields(value):
            return _attributes(value).items()
    return ()


def _attributes(value: Any) -> Mapping[str, Any]:
    if isinstance(value, BaseModel):
        return dict(value)
    fields = [field.name for field in dataclasses.fields(value)]
    return {name: getattr(value, name) for name in fields if hasattr(value, name)}


def _step(value: Any, key: Any) -> str:
    return f".{key}" if _has_fields(value) else f"[{key!r}]"


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    return type(one) is type(other) and isinstance(one, _VALUES) and one == other


def _warn(change: _Change, tasks: Sequence[Task]) -> None:
    names = list(dict.fromkeys(task.name for task in tasks))
    who = f"Node {names[0]!r}" if len(names) == 1 else f"One of the nodes {', '.join(map(repr, names))}"
    warnings.warn(
        f"{who} changed input{change.path} ({change.kind}) in place and did not return it: the stored value "
        "and the one that other nodes see may now differ. Change a copy, and return it.",
        InPlaceChangeWarning,
        stacklevel=2,
    )


_shortened = reprlib.Repr()
_shortened.maxdict, _shortened.maxlist, _shortened.maxlevel = 8, 4, 4
_shortened.maxstring, _shortened.maxother = 60, 80


def _short(value: Any) -> str:
    return _shortened.repr(value)


def _wrote(writes: Sequence[tuple[str, Any]]) -> str:
    """Return the words for a task's writes: state keys, then destinations."""
    keys = [f"{name} = {_short(value)}" for name, value in writes if name != TASKS and not is_trigger(name)]
    sends = [f"Send({value.node!r})" for name, value in writes if name == TASKS]
    goes = [name.removeprefix(BRANCH) for name, _ in writes if is_trigger(name)]
    going = f"goes to {', '.join((*goes, *sends))}" if goes or sends else ""
    return "; ".join(part for part in (", ".join(keys) or "nothing", going) if part)
