"""A survey of the standard library: one task for each of its hundreds of files, in a durable run.

    python examples/stdlib_survey.py            prints the packages with most functions
    python examples/stdlib_survey.py start      does so in a durable run in PERDURE_DATABASE_URL
    python examples/stdlib_survey.py recover    continues the runs of dead processes

`crash_and_resume.py` uses the last two.

    START ──▶ list_files ── one Send for each file ──▶ analyse ──▶ rank ──▶ END
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import json
import operator
import os
import sysconfig
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Any, TypedDict

import anyio

from perdure import END, START, Send, StateGraph
from perdure.service.recovery import recover
from perdure_checkpointers.postgres import PostgresSaver

STDLIB = Path(sysconfig.get_path("stdlib"))
SKIPPED = {
    "test",
    "tests",
    "idlelib",
    "lib2to3",
    "turtledemo",
    "site-packages",
    "dist-packages",
    "__pycache__",
}
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


class Report(TypedDict):
    """The contents of a file or package. `documented` of its `definitions` have a docstring."""

    name: str
    files: int
    functions: int
    classes: int
    definitions: int
    documented: int
    longest: str
    longest_lines: int


class Survey(TypedDict, total=False):
    """The state. Hundreds of tasks write `reports` in one superstep; the reducer joins them into one list."""

    limit: int | None
    files: list[str]
    reports: Annotated[list[Report], operator.add]
    ranking: list[Report]


class ToAnalyse(TypedDict):
    """The input of one task of `analyse`, sent in place of the state."""

    file: str


def survey(log: Callable[[str], object] = lambda line: None, pace: float = 0.0) -> StateGraph:
    """Describe the graph of the survey.

    Args:
        log: called when the analysis of a file starts and when it finishes.
        pace: delay of each analysis, in seconds.
    """

    def list_files(state: Survey) -> Survey:
        return {"files": source_files(state["limit"])}

    def one_task_per_file(state: Survey) -> list[Send]:
        return [Send("analyse", ToAnalyse(file=file)) for file in state["files"]]

    async def analyse(given: ToAnalyse) -> Survey:
        file = given["file"]
        log(f"started {file}")
        source = await anyio.Path(STDLIB, file).read_bytes()
        await anyio.sleep(pace)
        report = report_on(file, source)
        log(f"finished {file}")
        return {"reports": [report]}

    async def rank(state: Survey) -> Survey:
        return {"ranking": ranking_of(state["reports"])}

    builder = StateGraph(Survey)
    for node in (list_files, analyse, rank):
        builder.add_node(node)
    builder.add_edge(START, "list_files")
    builder.add_conditional_edges("list_files", one_task_per_file)
    builder.add_edge("analyse", "rank")
    builder.add_edge("rank", END)
    return builder


def source_files(limit: int | None = None) -> list[str]:
    """List the files of the standard library, or `limit` of them (at least one), evenly spread."""
    paths: list[Path] = []
    for folder, folders, names in os.walk(STDLIB):
        folders[:] = set(folders) - SKIPPED
        paths += [Path(folder, name) for name in names if name.endswith(".py")]
    files = sorted(path.relative_to(STDLIB).as_posix() for path in paths)
    count = len(files) if limit is None else min(max(limit, 1), len(files))
    return [files[n * len(files) // count] for n in range(count)]


def report_on(file: str, source: bytes) -> Report:
    tree = ast.parse(source, file)
    found = list(statements(tree))
    functions = [node for node in found if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    classes = [node for node in found if isinstance(node, ast.ClassDef)]
    definitions = [tree, *classes, *functions]
    lines, longest = max(((lines_of(node), node.name) for node in functions), default=(0, ""))
    return Report(
        name=file,
        files=1,
        functions=len(functions),
        classes=len(classes),
        definitions=len(definitions),
        documented=sum(ast.get_docstring(node, clean=False) is not None for node in definitions),
        longest=longest,
        longest_lines=lines,
    )


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements and handlers below a node of a syntax tree, in the order of the text."""
    for block in BLOCKS:
        for child in getattr(node, block, ()):
            yield child
            yield from statements(child)


def lines_of(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def ranking_of(reports: Sequence[Report]) -> list[Report]:
    """Sum up packages and single modules, and sort them by their number of functions."""
    packages: dict[str, list[Report]] = {}
    for report in reports:
        packages.setdefault(report["name"].partition("/")[0].removesuffix(".py"), []).append(report)
    ranking = [summed_up(name, files) for name, files in packages.items()]
    return sorted(ranking, key=lambda report: (-report["functions"], report["name"]))


def summed_up(name: str, reports: Sequence[Report]) -> Report:
    longest = max(reports, key=lambda report: report["longest_lines"])
    return Report(
        name=name,
        files=sum(report["files"] for report in reports),
        functions=sum(report["functions"] for report in reports),
        classes=sum(report["classes"] for report in reports),
        definitions=sum(report["definitions"] for report in reports),
        documented=sum(report["documented"] for report in reports),
        longest=longest["longest"],
        longest_lines=longest["longest_lines"],
    )


# Running it


async def run(chosen: argparse.Namespace, log: Callable[[str], object]) -> dict[str, Any]:
    """Run or recover a survey as chosen on the command line, and return its final state."""
    description, name = survey(log, chosen.pace), "stdlib-survey"
    # Each survey has a new thread: on an old one, the reducer would add to the reports that it has.
    config = {"configurable": {"thread_id": f"survey-{token_hex(4)}"}, "max_concurrency": 8}
    if chosen.command == "once":
        return dict(await description.compile(name=name).ainvoke({"limit": chosen.files}, config))
    async with saver_of(chosen) as saver:
        graph = description.compile(checkpointer=saver, name=name)
        if chosen.command == "start":
            await saver.setup()
            return dict(await graph.ainvoke({"limit": chosen.files}, config, durability="sync"))
        # Continue every orphaned run of this graph from its stored state.
        recovered = await recover(graph)
    if not recovered:
        raise SystemExit("There is nothing to recover: no survey is an orphan.")
    if recovered[0].error is not None:
        raise recovered[0].error
    return recovered[0].output or {}


@asynccontextmanager
async def saver_of(chosen: argparse.Namespace) -> AsyncIterator[PostgresSaver]:
    """Open a saver on Postgres.

    The process renews its lease regularly. When it has been silent for the length of the lease, another
    process may take over its runs. A process that cannot renew its lease stops its runs before it runs out.
    """
    url = os.environ["PERDURE_DATABASE_URL"]
    opened = PostgresSaver.from_conn_string(url, schema=chosen.schema, lease_seconds=chosen.lease)
    async with opened as saver:
        yield saver


@contextmanager
def appending(log: Path | None, name: str) -> Iterator[Callable[[str], object]]:
    """Provide a function that appends a line to the log, in one write.

    So a kill neither loses a line nor splits it.
    """
    if log is None:
        yield lambda line: None
        return
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        yield lambda line: os.write(descriptor, f"{name} {line}\n".encode())
    finally:
        os.close(descriptor)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("command", choices=("once", "start", "recover"), nargs="?", default="once")
    parser.add_argument("--schema", default="perdure", help="schema of Perdure's tables")
    parser.add_argument("--lease", type=float, default=30.0, metavar="SECONDS", help="length of the lease")
    parser.add_argument("--files", type=int, metavar="N", help="survey only N files")
    parser.add_argument("--pace", type=float, default=0.0, metavar="SECONDS", help="delay for each file")
    parser.add_argument("--log", type=Path, help="append a line when an analysis starts or finishes")
    parser.add_argument("--name", default="survey", help="first word of the lines in the log")
    parser.add_argument("--output", type=Path, help="write the final state to this file, as JSON")
    chosen = parser.parse_args()
    if chosen.command != "once" and "PERDURE_DATABASE_URL" not in os.environ:
        parser.error(f"{chosen.command} needs a database: set PERDURE_DATABASE_URL=postgresql://...")
    return chosen


def main() -> None:
    chosen = arguments()
    with appending(chosen.log, chosen.name) as log:
        state = asyncio.run(run(chosen, log))
    if chosen.output is not None:
        chosen.output.write_text(json.dumps(state))
        return
    for report in state["ranking"][:10]:
        print(f"{report['functions']:5} functions in {report['name']}, {report['files']} files")


if __name__ == "__main__":
    main()
