"""The rules of the engine that a machine can check: values are not changed, and outcomes all handled."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

import pytest

import perdure.pregel
from perdure.clock import SYSTEM_CLOCK, IdSource
from perdure.config import RunSettings
from perdure.constants import PULL
from perdure.data import Command, NodeError, StreamMode
from perdure.errors import GraphBubbleUp, ParentCommand
from perdure.pregel.events import facts, modes
from perdure.pregel.events.facts import Fact
from perdure.pregel.run.run import Run
from perdure.pregel.step import outcome as outcomes
from perdure.pregel.step.namespace import ROOT_NAMESPACE
from perdure.pregel.step.outcome import Failed, Finished, Left, Outcome, Stopped, Waiting
from perdure.pregel.step.output import Output
from perdure.pregel.step.task import FormerTask, Position, Superstep, Task
from perdure.pregel.work.running import Scope
from tests.unit.pregel.graphs import chain

ENGINE = Path(perdure.pregel.__path__[0])
ROOMS = ("step", "work", "run", "events", "lease")
TREES = {
    path.relative_to(ENGINE): ast.parse(path.read_text(), path)
    for room in ROOMS
    for path in sorted((ENGINE / room).rglob("*.py"))
}

# Assignment

MAY_ASSIGN = {
    ("step/failures.py", "error.__notes__"): "an exception's own, of a class that lets nobody set attributes",
    ("step/failures.py", "first.__perdure_siblings__"): "an exception carries what failed beside it",
    ("step/state.py", "state.versions"): "a class method fills the object that it has made",
    ("step/state.py", "state.seen"): "a class method fills the object that it has made",
    ("step/state.py", "state.counter"): "a class method fills the object that it has made",
    ("work/runner.py", "raised.__cause__"): "an exception that was made here, and is raised by value",
    ("events/printing.py", "_shortened.maxdict"): "reprlib is set up by attributes",
    ("events/printing.py", "_shortened.maxlist"): "reprlib is set up by attributes",
    ("events/printing.py", "_shortened.maxlevel"): "reprlib is set up by attributes",
    ("events/printing.py", "_shortened.maxstring"): "reprlib is set up by attributes",
    ("events/printing.py", "_shortened.maxother"): "reprlib is set up by attributes",
}
"""Assignments to the attributes of something other than `self` or `cls`, with their reasons."""


def assigned(tree: ast.AST) -> Iterator[str]:
    """Yield the attributes that are set or deleted, by whatever means, on anything but `self` and `cls`."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls"), ctx=ast.Store() | ast.Del()):
                pass
            case ast.Attribute(ctx=ast.Store() | ast.Del()):
                yield ast.unparse(node)
            case ast.Call(func=function, args=[target, name, *_]) if ast.unparse(function) in SETTERS:
                named = str(name.value) if isinstance(name, ast.Constant) else f"[{ast.unparse(name)}]"
                yield f"{ast.unparse(target)}.{named}"


SETTERS = {"setattr", "delattr", "object.__setattr__", "object.__delattr__"}


def test_an_object_is_changed_by_its_own_methods_only() -> None:
    found = {(path.as_posix(), target) for path, tree in TREES.items() for target in assigned(tree)}

    assert found == MAY_ASSIGN.keys()


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("task.writes = []", "task.writes"),
        ("run.x.y += 1", "run.x.y"),
        ("a, task.x = 1, 2", "task.x"),
        ("for task.x in y: pass", "task.x"),
        ("with x as task.y: pass", "task.y"),
        ("task.x: int = 1", "task.x"),
        ("del task.x", "task.x"),
        ("setattr(task, 'x', 1)", "task.x"),
        ("object.__setattr__(task, name, 1)", "task.[name]"),
        ("self.task.x = 1", "self.task.x"),
    ],
)
def test_every_way_to_change_another_object_is_found(source: str, target: str) -> None:
    assert list(assigned(ast.parse(source))) == [target]
    assert list(assigned(ast.parse("self.x = cls.y = z['a'] = task.x"))) == []


PLAN = chain(["a"]).compile().plan
SUPERSTEP = Superstep("c1", ROOT_NAMESPACE, 1, 25)
TASK = Task(PLAN.nodes["a"], (PULL, "a"), (), None, SUPERSTEP)
SCOPE = Scope(settings=RunSettings(), random=lambda: 0.0)
VALUES: list[Any] = [
    ROOT_NAMESPACE,
    TASK,
    SUPERSTEP,
    Position("c1", "loop", 1),
    Finished(TASK, [], 0),
    Failed(TASK, ValueError()),
    Waiting(TASK, GraphBubbleUp()),
    Left(TASK, ParentCommand(Command())),
    Stopped(TASK, "caller"),
    SCOPE,
    Run(
        plan=PLAN,
        scope=SCOPE,
        ids=IdSource(SYSTEM_CLOCK),
        namespace=ROOT_NAMESPACE,
        output=Output("x"),
        breakpoints=None,
        root=True,
    ),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_refuse_assignment(value: Any) -> None:
    fields = [name for name in dir(value) if not name.startswith("_") and not callable(getattr(value, name))]
    assert fields
    for name in [*fields, "something_new"]:
        # TypeError: what a frozen dataclass with slots raises for a new name, before Python 3.12.
        with pytest.raises((AttributeError, TypeError)):
            setattr(value, name, getattr(value, name, None))


def test_the_values_are_all_of_them() -> None:
    tested = {type(value) for value in VALUES}

    assert {Task, Superstep, Position, Run, Scope, *get_args(Outcome)} <= tested


def test_no_field_of_a_task_is_none_for_not_yet() -> None:
    hints = get_type_hints(Task)
    optional = {name: hint for name, hint in hints.items() if type(None) in get_args(hint)}

    assert set(Task._fields) <= hints.keys()
    assert optional == {
        "former": FormerTask | None,  # None: its node was not renamed
        "handles": NodeError | None,  # None: it is no error handler's
    }


# Outcomes

NAMES_OF_OUTCOMES = {kind.__name__ for kind in get_args(Outcome)}


class Match(NamedTuple):
    place: str
    node: ast.Match

    @property
    def is_exhaustive(self) -> bool:
        """True if its last case is `case _: assert_never(...)`, for type checkers."""
        match self.node.cases[-1]:
            case ast.match_case(pattern=ast.MatchAs(pattern=None), body=[ast.Expr(value=ast.Call() as call)]):
                return ast.unparse(call.func) == "assert_never"
        return False


def matches_of_outcomes(tree: ast.AST, path: Path | str) -> Iterator[Match]:
    """Yield the match statements of which a case, at its outermost, names an outcome."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Match) and any(names_outcome(case.pattern) for case in node.cases):
            yield Match(f"{path}:{node.lineno}", node)


def names_outcome(pattern: ast.pattern) -> bool:
    match pattern:
        case ast.MatchClass(cls=kind):
            return ast.unparse(kind).rpartition(".")[2] in NAMES_OF_OUTCOMES
        case ast.MatchOr(patterns=patterns):
            return any(map(names_outcome, patterns))
        case ast.MatchAs(pattern=ast.pattern() as inner):
            return names_outcome(inner)
    return False


def engine_matches() -> list[Match]:
    everything = sorted(ENGINE.parent.rglob("*.py"))
    return [each for path in everything for each in matches_of_outcomes(ast.parse(path.read_text()), path)]


def test_every_match_of_outcomes_ends_in_assert_never() -> None:
    assert engine_matches()
    assert [each.place for each in engine_matches() if not each.is_exhaustive] == []


def test_a_match_that_does_not_is_found() -> None:
    source = """
match outcome:
    case Finished() | Failed() if x:
        pass
    case _:
        {last}
"""
    for last, exhaustive in (("assert_never(outcome)", True), ("pass", False), ("print(outcome)", False)):
        [found] = matches_of_outcomes(ast.parse(source.format(last=last)), "here")
        assert found.is_exhaustive is exhaustive
    assert list(matches_of_outcomes(ast.parse("match x:\n    case Command(): pass"), "here")) == []


def test_mypy_fails_when_an_outcome_is_added_and_not_handled(tmp_path: Path) -> None:
    """Check the module of outcomes, which has a match itself, as it is and with one outcome more."""
    source = inspect.getsource(outcomes)
    assert "Outcome = Finished | Failed | Waiting | Left | Stopped" in source
    added = source.replace(
        "Outcome = Finished", "class Dreamt(NamedTuple):\n    task: Task\n\n\nOutcome = Dreamt | Finished"
    )
    errors = mypy(tmp_path, source), mypy(tmp_path, added)

    assert errors[0] == []
    [error] = errors[1]
    assert 'Argument 1 to "assert_never" has incompatible type "Dreamt"' in error


def mypy(folder: Path, source: str) -> list[str]:
    """Return the errors that mypy finds in a module, whose imports it does not follow."""
    file = folder / "outcome.py"
    file.write_text(source)
    options = [
        "--follow-imports=skip",
        "--ignore-missing-imports",
        f"--cache-dir={folder}",
        "--no-error-summary",
    ]
    command = [sys.executable, "-m", "mypy", "--config-file=", *options, str(file)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert checked.returncode in (0, 1), checked.stderr
    return checked.stdout.splitlines()


# Stream modes


def files_of_modes() -> set[str]:
    return {path.stem for path in Path(modes.__path__[0]).glob("*.py")} - {"__init__"}


def test_each_stream_mode_has_a_file_and_each_file_is_a_mode() -> None:
    assert files_of_modes() == set(get_args(StreamMode)) == modes.PROJECTIONS.keys()


@pytest.mark.parametrize("mode", sorted(files_of_modes()))
def test_a_modes_file_says_what_it_listens_for_and_projects_each_kind_of_it(mode: str) -> None:
    module = import_module(f"{modes.__name__}.{mode}")
    kinds = set(module.LISTENS)
    [parameter] = inspect.signature(module.project).parameters
    accepted = get_type_hints(module.project)[parameter]

    assert kinds
    assert kinds <= set(get_args(Fact))
    assert kinds == (set(get_args(accepted)) or {accepted})


def test_each_class_of_facts_is_a_fact() -> None:
    classes = {
        kind for _, kind in inspect.getmembers(facts, inspect.isclass) if kind.__module__ == facts.__name__
    }

    assert classes == set(get_args(Fact))
