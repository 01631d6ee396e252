"""Jobs: each is one worker process that measures one case on one side."""

import json
import os
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from cases import Case, Pass
from environments import ROOT
from server import Server
from sides import Side

WORKER = ROOT / "benchmarks" / "worker.py"
SOURCES = os.pathsep.join(str(ROOT / folder) for folder in ("runtime", "checkpointers", "migrations"))
"""The import path of the side `ours`, whatever is installed."""
TIME_LIMIT = 180
"""The time limit of a worker, in seconds."""

database_numbers = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    case: Case
    side: Side
    what: Pass


class FailedError(Exception):
    """A worker returned no figures. The message gives the reason."""


@dataclass(slots=True)
class Results:
    """The figures and failures of a comparison."""

    medians: dict[tuple[str, str, Side], list[float]] = field(default_factory=dict)
    """One figure per process, so that a fast process with more repetitions has no more weight."""
    states: dict[str, str] = field(default_factory=dict)
    """A digest of each case's final state, from the first process that ran the case."""
    failures: dict[tuple[str, Side, Pass], str] = field(default_factory=dict)

    def add(self, job: Job, answer: dict[str, Any]) -> None:
        """Keep the figures of one worker.

        Raises:
            FailedError: its final state differs from that of an earlier worker.
        """
        if self.states.setdefault(job.case.name, answer["state"]) != answer["state"]:
            raise FailedError("its final state differs from that of the side before it")
        for metric, values in answer["samples"].items():
            self.medians.setdefault((job.case.name, metric, job.side), []).append(median(values))

    def has_failed(self, job: Job) -> bool:
        return (job.case.name, job.side, job.what) in self.failures

    def figure(
        self, case: Case, metric: str, side: Side, of: Callable[[list[float]], float] = median
    ) -> float | None:
        medians = self.medians.get((case.name, metric, side))
        return of(medians) if medians else None

    def error(self, case: Case, what: Pass) -> str | None:
        errors = [
            f"{side}: {error}"
            for (name, side, failed), error in self.failures.items()
            if (name, failed) == (case.name, what)
        ]
        return "; ".join(errors) or None


def jobs_of(cases: Sequence[Case], what: Pass, sides: Iterable[Side], rounds: int = 1) -> list[Job]:
    """Make jobs that take the sides by turns, so that a slow machine slows all of them."""
    return [
        Job(case=case, side=side, what=what)
        for case in cases
        if what in case.passes
        for _ in range(min(rounds, 2) if case.slow else rounds)
        for side in sides
    ]


def perform(job: Job, python: Path, server: Server | None) -> dict[str, Any]:
    """Run a worker and return its answer.

    Raises:
        FailedError: it failed, took too long, or printed something else.
    """
    if job.case.saver != "postgres":
        return run_worker(job, python, None)
    assert server is not None
    with server.database(f"bench_{job.side}_{job.case.name}_{next(database_numbers)}") as uri:
        return run_worker(job, python, uri)


def run_worker(job: Job, python: Path, uri: str | None) -> dict[str, Any]:
    command = [str(python), str(WORKER), job.side, job.case.name, job.what]
    command += [] if uri is None else ["--uri", uri]
    variables = variables_of(job.side)
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=TIME_LIMIT, env=variables
        )
    except subprocess.TimeoutExpired:
        raise FailedError(f"not finished after {TIME_LIMIT} seconds") from None
    try:
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        last = done.stderr.strip().splitlines()[-1:] or ["no output"]
        raise FailedError(f"exit code {done.returncode}: {last[0]}") from None
    if "error" in answer:
        raise FailedError(answer["error"])
    return answer


def variables_of(side: Side) -> dict[str, str]:
    """Return equal environment variables for all sides, without settings of Python, databases or tracing."""
    foreign = ("PYTHON", "PG", "LANGCHAIN", "LANGSMITH", "LANGGRAPH", "PERDURE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return kept | {"PYTHONHASHSEED": "0"} | ({"PYTHONPATH": SOURCES} if side == "ours" else {})
