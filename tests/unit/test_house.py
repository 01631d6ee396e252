"""The rules of the house that a machine can check: names, imports, the public surface, SQL."""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

import perdure

ROOT = Path(__file__).parents[2]
SOURCE_ROOTS = [ROOT / "runtime", ROOT / "checkpointers", ROOT / "migrations"]
BACK_ENDS = ROOT / "checkpointers"
NAMES_THAT_SAY_NOTHING = {"utils", "helpers", "common", "misc", "main"}
MAY_IMPORT_LATE = ROOT / "runtime" / "perdure" / "integrations"
BLOCK_MARKER = re.compile(r"^-- name: *(\w+)", re.MULTILINE)

SOURCES = sorted(path for root in SOURCE_ROOTS for path in root.rglob("*.py"))
TREES = {path: ast.parse(path.read_text(), path) for path in SOURCES}


def module_name(path: Path) -> str:
    """`runtime/perdure/pregel/loop.py` is `perdure.pregel.run.loop`."""
    parts = path.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_roots(tree: ast.AST) -> set[str]:
    """The top-level packages that are imported anywhere in `tree`."""
    roots: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            roots.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            roots.add(node.module.partition(".")[0])
    return roots


def late_imports(tree: ast.AST) -> Iterator[int]:
    """The lines of imports inside functions."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            for node in ast.walk(function):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    yield node.lineno


# Names and imports


def test_modules_are_named_after_what_is_inside() -> None:
    names = {path for path in SOURCES if NAMES_THAT_SAY_NOTHING & {path.stem, path.parent.name}}
    assert not names


def test_only_aio_imports_asyncio() -> None:
    importers = {module_name(path) for path, tree in TREES.items() if "asyncio" in imported_roots(tree)}

    outside = {name for name in importers if not name.startswith("perdure.aio.")}
    assert not outside - {"perdure.pregel.events.stream"}


def test_functions_do_not_import() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path, tree in TREES.items()
        if not path.is_relative_to(MAY_IMPORT_LATE)
        for line in late_imports(tree)
    ]
    assert not found


# The public surface


class Export(NamedTuple):
    name: str
    line: int


def exports() -> list[Export]:
    """The entries of `perdure.__all__` with the lines they stand on."""
    assert perdure.__file__
    for node in ast.parse(Path(perdure.__file__).read_text()).body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if [target.id for target in targets if isinstance(target, ast.Name)] == ["__all__"]:
                assert isinstance(node.value, ast.List | ast.Tuple)
                return [
                    Export(entry.value, entry.lineno)
                    for entry in node.value.elts
                    if isinstance(entry, ast.Constant) and isinstance(entry.value, str)
                ]
    pytest.fail("perdure/__init__.py has no literal __all__")


def test_public_surface_has_what_the_first_example_needs() -> None:
    assert {"StateGraph", "START", "END", "Send", "Command"} <= {export.name for export in exports()}


def test_public_names_resolve() -> None:
    assert not [export.name for export in exports() if not hasattr(perdure, export.name)]


def test_public_names_are_listed_once() -> None:
    counts = Counter(export.name for export in exports())
    assert not [name for name, count in counts.items() if count > 1]


def test_public_names_are_grouped_under_headings() -> None:
    assert perdure.__file__
    lines = Path(perdure.__file__).read_text().splitlines()
    first_of_groups = [b for a, b in pairwise([Export("", 0), *exports()]) if b.line - a.line > 1]
    # Line numbers count from 1: the line before the entry's own is at its number - 2.
    assert not [name for name, line in first_of_groups if not lines[line - 2].strip().startswith("#")]


def test_public_classes_and_functions_have_docstrings() -> None:
    undocumented = []
    for export in exports():
        value = getattr(perdure, export.name)
        if inspect.isclass(value) or inspect.isroutine(value):
            text = value.__doc__ or ""
            # What dataclasses and named tuples write themselves repeats the signature.
            if not text.strip() or text.startswith(f"{value.__name__}("):
                undocumented.append(export.name)
    assert not undocumented


# SQL


def sql_blocks() -> list[tuple[str, str]]:
    """The file and the name of every block."""
    files = sorted(BACK_ENDS.rglob("*.sql"))
    return [
        (str(file.relative_to(ROOT)), name)
        for file in files
        for name in BLOCK_MARKER.findall(file.read_text())
    ]


def used_names(trees: list[ast.Module]) -> set[str]:
    """The names by which code uses blocks: as a part, by a string; as a statement, by reading an attribute.

    A string beside an attribute that is set (`self.renew = compose("renew")`) only prepares the statement.
    """
    nodes = [node for tree in trees for node in ast.walk(tree)]
    strings = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
    read = {node.attr for node in attributes if isinstance(node.ctx, ast.Load)}
    set_ = {node.attr for node in attributes if isinstance(node.ctx, ast.Store)}
    return read | (strings - set_)


def test_every_sql_block_is_used() -> None:
    used = used_names([tree for path, tree in TREES.items() if path.is_relative_to(BACK_ENDS)])
    unused = [block for block in sql_blocks() if block[1] not in used]
    assert not unused


def test_sql_blocks_have_different_names() -> None:
    repeated = [block for block, count in Counter(sql_blocks()).items() if count > 1]
    assert not repeated
