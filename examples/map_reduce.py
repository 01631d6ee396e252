"""Map and reduce: one task for each file, side by side; a reducer adds up; a join goes on when all is there.

    python examples/map_reduce.py [FOLDER]

Which words does a project's prose use that its code does not, and the other way round, apart from Python's
own? Counted in this repository, or in another folder with .md and .py files.

    START ─┬─▶ find_files ── one Send for each file ──▶ count_words ─┬─▶ compare ──▶ END
           └─▶ know_python ──────────────────────────────────────────┘
"""

from __future__ import annotations

import asyncio
import builtins
import keyword
import operator
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated, TypedDict

import anyio

from perdure import END, START, Pregel, Send, StateGraph

WORD = re.compile(r"[a-z]{3,}")
SKIPPED = {"site-packages", "node_modules", "__pycache__"}


class Comparison(TypedDict, total=False):
    """The state of the graph.

    `prose` and `code` are written by many tasks in one superstep; their reducer, +, adds the counts up.
    A key without a reducer could be written by one task only.
    """

    folder: str
    files: list[str]
    python: list[str]
    prose: Annotated[Counter[str], operator.add]
    code: Annotated[Counter[str], operator.add]
    prosaic: list[str]
    technical: list[str]


def find_files(state: Comparison) -> Comparison:
    """The files to read. Walking a tree blocks, so this is a plain function: those run in threads."""
    folder = Path(state["folder"])
    found = [path for path in folder.rglob("*.*") if path.suffix in (".md", ".py")]
    files = sorted(str(path) for path in found if is_own(path.relative_to(folder)))
    if not files:
        # Nothing would be sent, count_words would never run, and the join would wait until the run is over.
        raise FileNotFoundError(f"no .md and no .py files below {folder}")
    return {"files": files}


def is_own(path: Path) -> bool:
    return not any(part in SKIPPED or part.startswith(".") for part in path.parts)


def one_task_per_file(state: Comparison) -> list[Send]:
    """What is sent is all that the task is given: one path, not the state."""
    return [Send("count_words", file) for file in state["files"]]


async def count_words(file: str) -> Comparison:
    text = await anyio.Path(file).read_text(encoding="utf-8", errors="replace")
    counted = Counter(WORD.findall(text.lower()))
    return {"prose": counted} if file.endswith(".md") else {"code": counted}


async def know_python(state: Comparison) -> Comparison:
    return {"python": WORD.findall(" ".join([*keyword.kwlist, *dir(builtins)]).lower())}


async def compare(state: Comparison) -> Comparison:
    prose, code, known = state["prose"], state["code"], set(state["python"])
    return {"prosaic": typical(prose, code, known), "technical": typical(code, prose, known)}


def typical(here: Counter[str], there: Counter[str], known: set[str]) -> list[str]:
    """The words whose share here exceeds their share there the most."""

    def excess(word: str) -> float:
        return here[word] / here.total() - there[word] / (there.total() or 1)

    return sorted(here.keys() - known, key=lambda word: (-excess(word), word))[:10]


def word_comparison() -> Pregel:
    builder = StateGraph(Comparison)
    for node in (find_files, know_python, count_words, compare):
        builder.add_node(node)
    builder.add_edge(START, "find_files")
    builder.add_edge(START, "know_python")
    builder.add_conditional_edges("find_files", one_task_per_file)
    # A list of nodes is a join: `compare` runs once, when every task of both has ended.
    builder.add_edge(["count_words", "know_python"], "compare")
    builder.add_edge("compare", END)
    return builder.compile(name="word-comparison")


async def main(folder: Path) -> None:
    # At most so many tasks at once, and with them so many open files.
    result = await word_comparison().ainvoke({"folder": str(folder)}, {"max_concurrency": 16})
    print(f"{len(result['files'])} files below {folder}")
    for kind, favourites in (("prose", "prosaic"), ("code", "technical")):
        counted = result[kind]
        print(f"\n{kind}: {counted.total()} words, {len(counted)} different ones; most typical:")
        print("  " + ", ".join(f"{word} {counted[word]}" for word in result[favourites]))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1]))
