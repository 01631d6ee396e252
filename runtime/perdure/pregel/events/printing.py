"""Watching a run for its author: each superstep is printed, and what nodes change in place is found.

Nothing here runs unless debug is on.
"""

from __future__ import annotations

import dataclasses
import reprlib
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel

from perdure.constants import BRANCH, START, TASKS, is_trigger
from perdure.errors import InPlaceChangeWarning
from perdure.pregel.step.state import ThreadState
from perdure.pregel.step.task import Task
from perdure.pregel.work.handlers import acting, with_handlers

_VALUES = (str, bytes, int, float, bool, complex, type(None))


class Report:
    """Tells of one superstep."""

    __slots__ = ("_before", "_given", "_state", "_tasks", "_title")

    def __init__(self, graph: str, tasks: Sequence[Task], state: ThreadState) -> None:
        self._tasks = [task for task in acting(tasks) if task.writes is None]
        self._state = state
        self._before = dict(state.versions)
        self._given = [(task, list(_inside(task.input))) for task in self._tasks if task.name != START]
        superstep = tasks[0].superstep
        below = f" in {superstep.namespace}" if superstep.namespace else ""
        self._title = f"[{graph}{below} step {superstep.step}]"
        for task in acting(tasks):
            stored = " (finished before; its stored writes are used)" if task.writes is not None else ""
            self._say(f"{task.name} is given {_short(task.input)}{stored}")

    def ran(self) -> None:
        """Tell what the tasks wrote, and warn of what they changed without saying so."""
        for task in with_handlers(self._tasks):
            if task.error is not None:
                self._say(f"{task.name} failed: {_short(task.error)}")
            elif task.writes is None:
                self._say(f"{task.name} was stopped")
            else:
                self._say(f"{task.name} wrote {_told(task.writes)}")
        for change, tasks in self._changes().items():
            _warn(change, tasks)

    def applied(self) -> None:
        """Tell which keys of the state are not what they were."""
        keys, versions = self._state.plan.state_keys, self._state.versions
        changed = sorted(
            key
            for key in keys & (versions.keys() | self._before.keys())
            if versions.get(key) != self._before.get(key)
        )
        self._say(f"changed: {', '.join(changed) or 'nothing'}")

    def _changes(self) -> dict[_Change, list[Task]]:
        """What was changed in place and not returned, and the tasks that had it, of which one did it."""
        written = [value for task in with_handlers(self._tasks) for _, value in task.writes or ()]
        returned = {id(part.value) for part in _inside(written)}
        changes: dict[_Change, list[Task]] = {}
        for task, given in self._given:
            for part in given:
                if id(part.value) not in returned and not part.unchanged():
                    change = _Change(id(part.value), part.path, type(part.value).__name__)
                    changes.setdefault(change, []).append(task)
        return changes

    def _say(self, line: str) -> None:
        print(f"{self._title} {line}")  # noqa: T201  # what the author of the graph has asked to see


class _Change(NamedTuple):
    identity: int
    path: str
    kind: str


class _Part(NamedTuple):
    """Something changeable inside an input, and what it held."""

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
    """Every changeable thing in an input, but for the mapping or object that is all of it: the node's own."""
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
    """What a value is made of, by key, index or attribute."""
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
        f"{who} changed input{change.path} ({change.kind}) in place and did not return it: what is "
        "stored and what other nodes see may differ now. Change a copy, and return it.",
        InPlaceChangeWarning,
        stacklevel=2,
    )


_shortened = reprlib.Repr()
_shortened.maxdict, _shortened.maxlist, _shortened.maxlevel = 8, 4, 4
_shortened.maxstring, _shortened.maxother = 60, 80


def _short(value: Any) -> str:
    return _shortened.repr(value)


def _told(writes: Sequence[tuple[str, Any]]) -> str:
    """A task's writes in the words of its author: keys, then where it goes."""
    keys = [f"{name} = {_short(value)}" for name, value in writes if name != TASKS and not is_trigger(name)]
    sends = [f"Send({value.node!r})" for name, value in writes if name == TASKS]
    goes = [name.removeprefix(BRANCH) for name, _ in writes if is_trigger(name)]
    going = f"goes to {', '.join((*goes, *sends))}" if goes or sends else ""
    return "; ".join(part for part in (", ".join(keys) or "nothing", going) if part)
