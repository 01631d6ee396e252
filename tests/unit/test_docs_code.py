"""The programs in the reference, and in the how-tos that need no database, do what they say.

The Python blocks of a page are one program, run in their order. What a block prints is what its comments
`# prints: ...` say, line by line.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

DOCS = Path(__file__).parents[2] / "docs"
NOT_A_PROGRAM = {
    "howto/draw-a-graph.md",  # tests/unit/graph/drawing has a test of its own for it
    "howto/recover-after-a-crash.md",
    "reference/coming-from-langgraph.md",
    "reference/glossary.md",
}
ALL = {str(page.relative_to(DOCS)) for kind in ("howto", "reference") for page in DOCS.glob(f"{kind}/*.md")}
PAGES = sorted(ALL - NOT_A_PROGRAM)
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PROMISE = re.compile(r"^ *# prints: (.*)$", re.MULTILINE)


class Block(NamedTuple):
    code: str
    line: int

    @property
    def promised(self) -> list[str]:
        return PROMISE.findall(self.code)


def blocks(page: str) -> Iterator[Block]:
    text = (DOCS / page).read_text()
    for found in BLOCK.finditer(text):
        yield Block(found[1], text.count("\n", 0, found.start(1)))


@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_print_what_they_promise(
    page: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = ModuleType(f"page_{Path(page).stem}")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # where annotations are looked up
    promised = 0
    for block in blocks(page):
        # Compiled on the lines it has in the page, so that a traceback leads there.
        exec(compile("\n" * block.line + block.code, DOCS / page, "exec"), module.__dict__)
        assert capsys.readouterr().out.splitlines() == block.promised, f"{page}, line {block.line}"
        promised += len(block.promised) + len(re.findall(r"^assert ", block.code, re.MULTILINE))
    assert promised, f"nothing on {page} shows that it is so"


def test_every_kind_of_page_is_run_or_is_known_not_to_be() -> None:
    assert {"reference/state.md", "howto/cache-a-node.md"} <= set(PAGES)
    assert ALL >= NOT_A_PROGRAM
