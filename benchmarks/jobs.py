"""Jobs: one worker process each, which measures one case on one side."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median

from cases import Case, Pass
from server import Server
from sides import SIDES, Side

WORKER = Path(__file__).with_name("worker.py")
TIME_LIMIT = 180
"""Seconds that a worker may take."""

database_numbers = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    case: Case
    side: Side
    what: Pass


class FailedError(Exception):
    """A worker did not deliver its figures; the message says why."""


@dataclass(slots=True)
class Results:
    """The figures of a run, and what failed."""

    medians: dict[tuple[str, str, Side], list[float]] = field(default_factory=dict)
    """One for each process, so that a process that was fast, and repeated more, has no more say."""
    failures: dict[tuple[str, Side, Pass], str] = field(default_factory=dict)

    def add(self, job: Job, samples: Mapping[str, list[float]]) -> None:
        for metric, values in samples.items():
            self.medians.setdefault((job.case.name, metric, job.side), []).append(median(values))

    def has_failed(self, job: Job) -> bool:
        return (job.case.name, job.side, job.what) in self.failures

    def figure(self, case: Case, metric: str, side: Side) -> float | None:
        medians = self.medians.get((case.name, metric, side))
        return median(medians) if medians else None

    def error(self, case: Case, what: Pass) -> str | None:
        errors = {side: self.failures.get((case.name, side, what)) for side in SIDES}
        return "; ".join(f"{side}: {error}" for side, error in errors.items() if error) or None


def timed_jobs(cases: list[Case], rounds: int) -> list[Job]:
    """Ours, peer, ours, peer: a machine that slows down slows both."""
    return [
        Job(case=case, side=side, what="time")
        for case in cases
        if "time" in case.passes
        for _ in range(min(rounds, 2) if case.slow else rounds)
        for side in SIDES
    ]


def counting_jobs(cases: list[Case], *, calls: bool) -> list[Job]:
    """What does not depend on the clock, and may run side by side; the slowest first."""
    jobs = [
        Job(case=case, side=side, what=what)
        for case in cases
        for what in case.passes
        if what == "peak" or (what == "calls" and calls)
        for side in SIDES
    ]
    return sorted(jobs, key=lambda job: not job.case.slow)


def traffic_jobs(cases: list[Case]) -> list[Job]:
    """One after the other: the server's log is shared."""
    with_traffic = [case for case in cases if "traffic" in case.passes]
    return [Job(case=case, side=side, what="traffic") for case in with_traffic for side in SIDES]


def perform(job: Job, python: Path, server: Server | None) -> dict[str, list[float]]:
    """Runs the worker and returns its samples.

    Raises:
        FailedError: it failed, took too long, or printed something else.
    """
    if job.case.saver != "postgres":
        return run_worker(job, python, None)
    assert server is not None
    with server.database(f"bench_{job.side}_{job.case.name}_{next(database_numbers)}") as uri:
        return run_worker(job, python, uri)


def run_worker(job: Job, python: Path, uri: str | None) -> dict[str, list[float]]:
    command = [str(python), str(WORKER), job.side, job.case.name, job.what]
    command += [] if uri is None else ["--uri", uri]
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=TIME_LIMIT, env=environment()
        )
    except subprocess.TimeoutExpired:
        raise FailedError(f"not done after {TIME_LIMIT} seconds") from None
    try:
        answer = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        last = done.stderr.strip().splitlines()[-1:] or ["no output"]
        raise FailedError(f"exit code {done.returncode}: {last[0]}") from None
    if "error" in answer:
        raise FailedError(answer["error"])
    return {metric: [float(value) for value in values] for metric, values in answer.items()}


def environment() -> dict[str, str]:
    """The same for both sides, with nobody's Python settings, database or tracing in it."""
    foreign = ("PYTHON", "PG", "LANGCHAIN", "LANGSMITH", "LANGGRAPH", "PERDURE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return kept | {"PYTHONHASHSEED": "0"}
