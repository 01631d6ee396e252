"""A check of the docs: links lead to existing files and headings, and Python blocks compile."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
BLOCK = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


def pages() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def anchors(page: Path) -> set[str]:
    """Return the fragments of a page's headings, as GitHub makes them."""
    headings = HEADING.findall(BLOCK.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path, text: str) -> Iterator[str]:
    for link in LINK.findall(text):
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, fragment = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            yield f"{link} leads to no file"
        elif fragment and fragment not in anchors(target):
            yield f"{link} leads to no heading"


def broken_blocks(text: str) -> Iterator[str]:
    for _, language, code in BLOCK.findall(text):
        if language in {"python", "py"}:
            try:
                compile(dedent(code), "block", "exec")
            except SyntaxError as error:
                yield f"a Python block does not compile: {error.msg}: {(error.text or '').strip()}"


def problems(page: Path) -> list[str]:
    text = page.read_text()
    return [*broken_links(page, BLOCK.sub("", text)), *broken_blocks(text)]


def report() -> int:
    found = 0
    for page in pages():
        for problem in problems(page):
            found += 1
            print(f"{page.relative_to(ROOT)}: {problem}")
    print(f"{len(pages())} pages, {found} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(report())
