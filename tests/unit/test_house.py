"""The rules of the house that a machine can check: names, imports, docstrings, the public surface, SQL."""

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
NAMES_THAT_SAY_NOTHING = {"utils", "helpers", "common", "misc", "main", "hold", "frame", "once", "declared"}
MAY_IMPORT_LATE = ROOT / "runtime" / "perdure" / "integrations"
BLOCK_MARKER = re.compile(r"^-- name: *(\w+)", re.MULTILINE)

MOST_DOORS = 14

SOURCES = sorted(path for root in SOURCE_ROOTS for path in root.rglob("*.py"))
TREES = {path: ast.parse(path.read_text(), path) for path in SOURCES}
OTHER_SOURCES = [path for name in ("benchmarks", "docs", "examples") for path in (ROOT / name).rglob("*.py")]
TESTS = sorted((ROOT / "tests").rglob("*.py"))


def module_name(path: Path) -> str:
    """Return the import name of a module: that of `runtime/perdure/ids.py` is `perdure.ids`."""
    parts = path.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_roots(tree: ast.AST) -> set[str]:
    """Return the top-level packages that are imported anywhere in `tree`."""
    roots: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            roots.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            roots.add(node.module.partition(".")[0])
    return roots


def late_imports(tree: ast.AST) -> Iterator[int]:
    """Yield the lines of imports inside functions."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            for node in ast.walk(function):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    yield node.lineno


# Names and imports


def test_modules_are_named_after_what_is_inside() -> None:
    names = {path for path in SOURCES if NAMES_THAT_SAY_NOTHING & {path.stem, path.parent.name}}
    assert not names


def test_a_package_has_at_most_fourteen_doors() -> None:
    """The package `perdure` itself has more: public module paths are given, and most of them are faces."""
    doors = Counter(path.parent for path in SOURCES if path.name != "__init__.py")
    doors.update(path.parent.parent for path in SOURCES if path.name == "__init__.py")
    crowded = {path.relative_to(ROOT) for path, count in doors.items() if count > MOST_DOORS}
    assert crowded == {Path("runtime/perdure")}


def test_no_two_classes_have_one_name() -> None:
    counts = Counter(
        node.name for tree in TREES.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    )
    assert not {name for name, count in counts.items() if count > 1}


def test_only_aio_imports_asyncio() -> None:
    importers = {module_name(path) for path, tree in TREES.items() if "asyncio" in imported_roots(tree)}

    assert not {name for name in importers if not name.startswith("perdure.aio.")}


def test_functions_do_not_import() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path, tree in TREES.items()
        if not path.is_relative_to(MAY_IMPORT_LATE)
        for line in late_imports(tree)
    ]
    assert not found


# Docstrings

RIDDLE = re.compile(r"(What|Whether|Who|Whose|Where|How|Which|That|The same)\b")
FIRST_WORDS_OF_NOUN_PHRASES = """
A An The This That These Those It Its Their His Her One Two Both Either Neither Each Every Any All Some No
None Nothing Something Anything Everything Nobody Somebody Only Also As At After Before Between But By During
For From If In Into Of On Once Or Out Since So To Under Until Up When While With Without
"""
NOT_A_VERB = frozenset(FIRST_WORDS_OF_NOUN_PHRASES.split())
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Docstring(NamedTuple):
    text: str
    line: int
    of_function: bool


def docstrings(tree: ast.Module) -> Iterator[Docstring]:
    """Yield the docstrings of modules, classes, functions and attributes. A property is an attribute."""
    for node in ast.walk(tree):
        if not isinstance(node, Documented):
            continue
        text = ast.get_docstring(node)
        if text is not None:
            yield Docstring(text, node.body[0].lineno, is_function(node))
        if isinstance(node, ast.Module | ast.ClassDef):
            yield from attribute_docstrings(node.body)


def is_function(node: Documented) -> bool:
    """Return True for a function or method that is neither a property nor a test."""
    if isinstance(node, ast.Module | ast.ClassDef) or node.name.startswith("test_"):
        return False
    return not any("property" in ast.unparse(decorator) for decorator in node.decorator_list)


def attribute_docstrings(body: list[ast.stmt]) -> Iterator[Docstring]:
    """Yield the strings that follow an assignment."""
    for assignment, following in pairwise(body):
        match following:
            case ast.Expr(value=ast.Constant(value=str() as text)) if isinstance(
                assignment, ast.Assign | ast.AnnAssign
            ):
                yield Docstring(text, following.lineno, of_function=False)


def may_begin_with_verb(text: str) -> bool:
    """Return True if the first word of a docstring may be a verb in the imperative."""
    word = re.split(r"[^\w`]", text, maxsplit=1)[0]
    third_person_or_plural = word.endswith("s") and not word.endswith("ss")
    return word[:1].isupper() and word not in NOT_A_VERB and not third_person_or_plural


def docstrings_in(paths: list[Path]) -> Iterator[tuple[str, Docstring]]:
    """Yield each docstring that has to follow the rules, with its place."""
    for path in paths:
        tree = TREES.get(path) or ast.parse(path.read_text(), path)
        for docstring in docstrings(tree):
            yield f"{path.relative_to(ROOT)}:{docstring.line}: {docstring.text[:60]}", docstring


def test_no_docstring_begins_with_a_riddle() -> None:
    everywhere = docstrings_in([*SOURCES, *OTHER_SOURCES, *TESTS])
    assert not [place for place, docstring in everywhere if RIDDLE.match(docstring.text)]


def test_a_function_is_described_by_an_imperative() -> None:
    wrong = [
        place
        for place, docstring in docstrings_in([*SOURCES, *OTHER_SOURCES, *TESTS])
        if docstring.of_function and not may_begin_with_verb(docstring.text)
    ]
    assert not wrong


def test_all_kinds_of_docstrings_are_found() -> None:
    source = '''
"""Module."""
LIMIT = 1
"""Constant."""
class Some:
    """Class."""
    field: int = 0
    """Field."""
    @property
    def size(self) -> int:
        """Property."""
    async def run(self) -> None:
        """Method."""
        def inner() -> None:
            """Function."""
'''
    found = {docstring.text: docstring.of_function for docstring in docstrings(ast.parse(source))}

    assert found == {
        **dict.fromkeys(("Module.", "Constant.", "Class.", "Field.", "Property."), False),
        **dict.fromkeys(("Method.", "Function."), True),
    }


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("Return the id.", True),
        ("Process all tasks.", True),
        ("The id of a task.", False),
        ("Returns the id.", False),
        ("`value` itself.", False),
        ("nothing but lower case.", False),
        ("If set, the id.", False),
    ],
)
def test_a_verb_is_told_from_other_words(text: str, good: bool) -> None:
    assert may_begin_with_verb(text) is good


# The public surface


class Export(NamedTuple):
    name: str
    line: int


def exports() -> list[Export]:
    """Return the entries of `perdure.__all__` with their lines."""
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
    # Lines count from 1: the line before the entry's own has the index `line - 2`.
    assert not [name for name, line in first_of_groups if not lines[line - 2].strip().startswith("#")]


def test_public_classes_and_functions_have_docstrings() -> None:
    undocumented = []
    for export in exports():
        value = getattr(perdure, export.name)
        if inspect.isclass(value) or inspect.isroutine(value):
            text = value.__doc__ or ""
            # The generated docstring of a dataclass or named tuple repeats the signature.
            if not text.strip() or text.startswith(f"{value.__name__}("):
                undocumented.append(export.name)
    assert not undocumented


# SQL


def sql_blocks() -> list[tuple[str, str]]:
    """Return the file and the name of every block."""
    files = sorted(BACK_ENDS.rglob("*.sql"))
    return [
        (str(file.relative_to(ROOT)), name)
        for file in files
        for name in BLOCK_MARKER.findall(file.read_text())
    ]


def used_names(trees: list[ast.Module]) -> set[str]:
    """Return the names by which code uses blocks: strings (parts), and attributes that are read (statements).

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
