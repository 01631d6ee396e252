"""The page on errors and the tree of errors tell of the same classes."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from perdure import errors

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/errors.md").read_text()
CLASSES = {
    name: value
    for name, value in vars(errors).items()
    if inspect.isclass(value) and issubclass(value, BaseException) and value.__module__ == errors.__name__
}
ROW = re.compile(r"^\| `(\w+)` \| `(\w+)` \|", re.MULTILINE)


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_every_class_is_on_the_page(name: str) -> None:
    assert f"`{name}`" in PAGE


def test_every_error_on_the_page_exists_and_is_what_the_page_says() -> None:
    rows = dict(ROW.findall(PAGE))

    assert {name: parent for name, parent in rows.items() if name not in CLASSES} == {}
    assert {
        name: parent
        for name, parent in rows.items()
        if parent not in {base.__name__ for base in CLASSES[name].__mro__}
    } == {}


def test_every_error_has_a_row_and_stands_in_the_tree_at_the_top_of_its_module() -> None:
    kinds = {name for name, kind in CLASSES.items() if issubclass(kind, errors.PerdureError)}
    kinds.remove("PerdureError")

    assert kinds <= set(dict(ROW.findall(PAGE)))
    assert {name for name in kinds if not re.search(rf"── {name} \(", errors.__doc__ or "")} == set()
