"""This project and its peer side by side: the same graphs, each side in its own processes and environment.

    .venv/bin/python benchmarks/run.py                     everything, about four minutes
    .venv/bin/python benchmarks/run.py --quick             one round, no slow cases, no count of calls
    .venv/bin/python benchmarks/run.py --only 'chain_*'    some cases; may be repeated
    .venv/bin/python benchmarks/run.py --no-postgres       what runs in memory
    .venv/bin/python benchmarks/run.py --strict            exit code 1 when a bar is missed

The first run makes the peer's environment in `.bench/peer` from `peer-requirements.txt`. Timed runs
alternate, ours, peer, ours, peer, with nothing beside them; each process warms up once, collects garbage
before each repetition, and measures neither imports nor `compile`. What is counted (Python calls, peak
memory, round trips, bytes, write-ahead log) is counted in processes of its own, which nobody times. The
Postgres cases run against an embedded server with fsync on, each process with a new database.

The table goes to the screen and the figures to `benchmarks/out/latest.json`, a list of `{"case",
"metric", "ours", "peer", "ratio"}` with ratio = peer / ours; `metric` is one of time_us, calls,
round_trips, bytes_sent, wal_bytes, peak_kb. All are per unit (superstep or task) but peak_kb, which is
that of a run. A side that failed has null for its figure, and the object has an `error`; the exit code is
1.
"""

import argparse
import os
import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import report
from cases import CASES, Case
from jobs import FailedError, Job, Results, counting_jobs, perform, timed_jobs, traffic_jobs
from peer import peer_python
from server import Server, embedded_server
from sides import Side

ROOT = Path(__file__).resolve().parent.parent
WORK_FOLDER = ROOT / ".bench"
OUTPUT = ROOT / "benchmarks" / "out" / "latest.json"
ROUNDS = 3
COUNTERS_AT_ONCE = 2
WIDTH_OF_LOGS = 110


@dataclass(slots=True, kw_only=True)
class Harness:
    """Performs jobs, and keeps what they say."""

    pythons: dict[Side, Path]
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
        """Once a side has failed at something, it is not asked again."""
        if self.results.has_failed(job):
            return
        try:
            self.results.add(job, perform(job, self.pythons[job.side], self.server))
        except FailedError as error:
            self.results.failures[job.case.name, job.side, job.what] = str(error)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure this project and its peer side by side.")
    parser.add_argument("--quick", action="store_true", help="one round, no slow cases, no count of calls")
    parser.add_argument("--only", action="append", metavar="CASE", help="a case or a pattern; repeatable")
    parser.add_argument("--no-postgres", action="store_true", help="only the cases that run in memory")
    parser.add_argument("--strict", action="store_true", help="exit code 1 when a bar is missed")
    arguments = parser.parse_args()
    for pattern in arguments.only or []:
        if not any(fnmatch(case.name, pattern) for case in CASES):
            parser.error(f"no case is called {pattern}; there are {', '.join(case.name for case in CASES)}")
    return arguments


def chosen_cases(arguments: argparse.Namespace) -> list[Case]:
    patterns = arguments.only or ["*"]
    return [
        case
        for case in CASES
        if any(fnmatch(case.name, pattern) for pattern in patterns)
        and not (arguments.quick and case.slow)
        and not (arguments.no_postgres and case.saver == "postgres")
    ]


def measure(cases: list[Case], quick: bool, console: Console) -> Results:
    WORK_FOLDER.mkdir(exist_ok=True)
    with ExitStack() as stack:
        with console.status("Making the peer's environment (once)"):
            peer = peer_python(WORK_FOLDER / "peer")
        server = None
        if any(case.saver == "postgres" for case in cases):
            with console.status("Starting PostgreSQL"):
                server = stack.enter_context(embedded_server(WORK_FOLDER))
        console.print(
            f"Python {platform.python_version()}, {os.cpu_count()} cores"
            + (f", PostgreSQL {server.version}, fsync on" if server else "")
        )
        progress = stack.enter_context(progress_bar(console))
        pythons: dict[Side, Path] = {"ours": Path(sys.executable), "peer": peer}
        harness = Harness(pythons=pythons, server=server, progress=progress, results=Results())
        timed = timed_jobs(cases, 1 if quick else ROUNDS) + traffic_jobs(cases)
        harness.perform_all(timed, counting_jobs(cases, calls=not quick))
        return harness.results


def progress_bar(console: Console) -> Progress:
    description = TextColumn("{task.description:<34}")
    return Progress(description, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console)


def main() -> int:
    arguments = parse_arguments()
    console = Console(width=None if sys.stdout.isatty() else WIDTH_OF_LOGS)
    cases = chosen_cases(arguments)
    results = measure(cases, arguments.quick, console)
    rows = report.rows_of(cases, results)
    report.write(OUTPUT, rows)
    report.show(console, rows)
    within_bars = report.growth_passed(console, rows) and all(row.passed is not False for row in rows)
    left_out = [case.name for case in CASES if case not in cases]
    if left_out:
        console.print(f"Left out, as asked: {', '.join(left_out)}")
    console.print(f"Written to {OUTPUT.relative_to(ROOT)}")
    if results.failures:
        return 1
    return 0 if within_bars or not arguments.strict else 1


if __name__ == "__main__":
    sys.exit(main())
