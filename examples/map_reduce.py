"""Map and reduce: one task per file, a reducer that adds up the results, and a join that waits for all.

    python examples/map_reduce.py [FOLDER]

Finds the words that are typical of a project's prose and those that are typical of its code, apart from
Python's own. Reads the .md and .py files of this repository or of another folder.

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

    Many tasks write `prose` and `code` in one superstep, and the reducer + adds up the counts. Without a
    reducer, only one task could write a key.
    """

    folder: str
    files: list[str]
    python: list[str]
    prose: Annotated[Counter[str], operator.add]
    code: Annotated[Counter[str], operator.add]
    prosaic: list[str]
    technical: list[str]


class ToCount(TypedDict):
    """The input of one task of `count_words`, sent in place of the state."""

    file: str


def find_files(state: Comparison) -> Comparison:
    """List the files to read. Walking a tree blocks, so this is a sync function, which runs in a thread."""
    folder = Path(state["folder"])
    found = [path for path in folder.rglob("*.*") if path.suffix in (".md", ".py")]
    files = sorted(str(path) for path in found if is_own(path.relative_to(folder)))
    if not files:
        # Without a Send, count_words would never run, and the run would end before the join fires.
        raise FileNotFoundError(f"There are no .md and no .py files below {folder}. Choose another folder.")
    return {"files": files}


def is_own(path: Path) -> bool:
    return not any(part in SKIPPED or part.startswith(".") for part in path.parts)


def one_task_per_file(state: Comparison) -> list[Send]:
    """Send each path to a task of its own. The task receives the path instead of the state."""
    return [Send("count_words", ToCount(file=file)) for file in state["files"]]


async def count_words(given: ToCount) -> Comparison:
    file = given["file"]
    text = await anyio.Path(file).read_text(encoding="utf-8", errors="replace")
    counted = Counter(WORD.findall(text.lower()))
    return {"prose": counted} if file.endswith(".md") else {"code": counted}


async def know_python(state: Comparison) -> Comparison:
    return {"python": WORD.findall(" ".join([*keyword.kwlist, *dir(builtins)]).lower())}


async def compare(state: Comparison) -> Comparison:
    prose, code, known = state["prose"], state["code"], set(state["python"])
    return {"prosaic": typical(prose, code, known), "technical": typical(code, prose, known)}


def typical(here: Counter[str], there: Counter[str], known: set[str]) -> list[str]:
    """Return the ten words whose share here exceeds their share there the most."""

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
    # A list of nodes is a join: `compare` runs once, when all tasks of both nodes have ended.
    builder.add_edge(["count_words", "know_python"], "compare")
    builder.add_edge("compare", END)
    return builder.compile(name="word-comparison")


async def main(folder: Path) -> None:
    # A limit on tasks that run at once, and so on open files.
    result = await word_comparison().ainvoke({"folder": str(folder)}, {"max_concurrency": 16})
    print(f"{len(result['files'])} files below {folder}")
    for kind, favourites in (("prose", "prosaic"), ("code", "technical")):
        counted = result[kind]
        print(f"\n{kind}: {counted.total()} words, {len(counted)} different; most typical:")
        print("  " + ", ".join(f"{word} {counted[word]}" for word in result[favourites]))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1]))
