"""The page for users of LangGraph: names that it lists exist, names that it calls missing do not."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from perdure.graph import CompiledStateGraph

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "coming-from-langgraph.md").read_text()
ROW = re.compile(r"^\| (.+) \| (.+) \|$", re.MULTILINE)
QUOTED = re.compile(r"`([\w.]+)`")


def rows(heading: str) -> list[tuple[str, str]]:
    return ROW.findall(PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0])


THERE = [
    (module, name)
    for names, modules in rows("Names and imports")
    for module in QUOTED.findall(modules)
    for name in QUOTED.findall(names)
]
NOT_YET = [name for names, _ in rows("Not available yet") for name in QUOTED.findall(names) if "." in name]


@pytest.mark.parametrize(("module", "name"), THERE)
def test_what_is_there_can_be_imported_from_where_the_page_says(module: str, name: str) -> None:
    assert hasattr(import_module(module), name)


@pytest.mark.parametrize("name", NOT_YET)
def test_what_is_not_there_yet_is_not(name: str) -> None:
    owner, _, attribute = name.rpartition(".")
    where: Any = CompiledStateGraph if owner == "graph" else import_module(owner)
    module = find_spec(name) if hasattr(where, "__path__") else None

    assert module is None, f"{name} exists now: say so on the page"
    assert not hasattr(where, attribute), f"{name} exists now: say so on the page"


def test_the_page_is_read_as_it_is_meant() -> None:
    assert ("perdure.types", "RetryPolicy") in THERE
    assert {"graph.astream_events", "perdure.types.interrupt", "perdure.prebuilt"} <= set(NOT_YET)
