"""The common parts of all comparisons: choose cases, run workers in order, keep figures."""

import argparse
import os
import platform
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cases import CASES, Case
from environments import ROOT
from jobs import FailedError, Job, Results, perform
from server import Server, embedded_server
from sides import Side

WORK_FOLDER = ROOT / ".bench"
COUNTERS_AT_ONCE = 2
WIDTH_OF_LOGS = 110


@dataclass(slots=True, kw_only=True)
class Harness:
    """A runner of jobs that keeps their results."""

    pythons: Mapping[Side, Path]
    server: Server | None
    progress: Progress
    results: Results

    def perform_all(self, timed: list[Job], counted: list[Job]) -> None:
        bar = self.progress.add_task("", total=len(timed) + len(counted))
        for job in timed:
            self.progress.update(bar, description=f"{job.case.name}, {job.what}, {job.side}")
            self.perform(job)
            self.progress.advance(bar)
        self.progress.update(bar, description="calls and memory, two at a time")
        with ThreadPoolExecutor(COUNTERS_AT_ONCE) as executor:
            for _ in executor.map(self.perform, counted):
                self.progress.advance(bar)
        self.progress.update(bar, description="done")

    def perform(self, job: Job) -> None:
        """Perform a job, unless its side has already failed at it."""
        if self.results.has_failed(job):
            return
        try:
            self.results.add(job, perform(job, self.pythons[job.side], self.server))
        except FailedError as error:
            self.results.failures[job.case.name, job.side, job.what] = str(error)


def measure(
    console: Console, pythons: Mapping[Side, Path], results: Results, timed: list[Job], counted: list[Job]
) -> None:
    """Perform the timed jobs one after the other, then the counted jobs side by side."""
    with ExitStack() as stack:
        server = None
        if any(job.case.saver == "postgres" for job in [*timed, *counted]):
            with console.status("Starting PostgreSQL"):
                server = stack.enter_context(embedded_server(WORK_FOLDER))
        console.print(
            f"Python {platform.python_version()}, {os.cpu_count()} cores"
            + (f", PostgreSQL {server.version}, fsync on" if server else "")
        )
        progress = stack.enter_context(progress_bar(console))
        harness = Harness(pythons=pythons, server=server, progress=progress, results=results)
        harness.perform_all(timed, counted)


def progress_bar(console: Console) -> Progress:
    description = TextColumn("{task.description:<34}")
    return Progress(description, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console)


def opened_console() -> Console:
    return Console(width=None if sys.stdout.isatty() else WIDTH_OF_LOGS)


def add_only(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only",
        action="append",
        metavar="CASE",
        type=pattern_of_cases,
        help="a case or a pattern; repeatable",
    )


def pattern_of_cases(text: str) -> str:
    if not any(fnmatch(case.name, text) for case in CASES):
        names = ", ".join(case.name for case in CASES)
        raise argparse.ArgumentTypeError(f"no case is named {text}; choose from {names}")
    return text


def chosen_cases(only: Iterable[str] | None, *, slow: bool, postgres: bool) -> list[Case]:
    """Return the cases that match one of the patterns, or all cases without a pattern."""
    return [
        case
        for case in CASES
        if any(fnmatch(case.name, pattern) for pattern in only or ["*"])
        and (slow or not case.slow)
        and (postgres or case.saver != "postgres")
    ]
