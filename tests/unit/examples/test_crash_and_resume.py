"""The demo's claims: each fails on evidence against it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from examples.crash_and_resume import Evidence, judge

FILES = ["a.py", "b.py", "c.py", "d.py"]


def state(files: list[str]) -> dict[str, Any]:
    return {"files": files, "reports": [{"name": file} for file in files], "ranking": [{"name": "a"}]}


def what_was_seen() -> Evidence:
    """Return evidence of a good run: a is stored, b analysed but not stored, c started, d not started."""
    return Evidence(
        exit_code=-signal.SIGKILL,
        seconds=1.0,
        superstep=2,
        stored=["a.py"],
        rows=({}, {}),
        run=("success", 2),
        result=state(FILES),
        undisturbed=state(FILES),
        log={
            ("first", "started"): ["a.py", "b.py", "c.py"],
            ("first", "finished"): ["a.py", "b.py"],
            ("second", "started"): ["b.py", "c.py", "d.py"],
            ("second", "finished"): ["b.py", "c.py", "d.py"],
        },
    )


def failed(seen: Evidence) -> set[str]:
    return {claim for claim, objections in judge(seen).items() if objections}


def test_all_claims_hold_where_only_the_unstored_was_analysed_again() -> None:
    assert not failed(what_was_seen())


def logged(name: str, event: str, *files: str) -> Callable[[Evidence], Evidence]:
    return lambda seen: replace(seen, log={**seen.log, (name, event): files})


def result(**changed: Any) -> Callable[[Evidence], Evidence]:
    return lambda seen: replace(seen, result={**seen.result, **changed})


@pytest.mark.parametrize(
    ("tampered", "claim"),
    [
        (lambda seen: replace(seen, exit_code=0), "A process was killed"),
        (lambda seen: replace(seen, stored=[]), "A process was killed"),
        (lambda seen: replace(seen, stored=["a.py", "c.py"]), "It had analysed all files"),
        (logged("first", "finished", "b.py"), "It had analysed all files"),
        (logged("second", "started", "a.py", "b.py", "c.py", "d.py"), "No file was analysed again"),
        (logged("first", "started", "a.py", "a.py", "b.py", "c.py"), "No process analysed"),
        (logged("second", "started", "b.py", "c.py", "d.py", "d.py"), "No process analysed"),
        (logged("second", "finished", "b.py", "c.py"), "No file was missed"),
        (result(reports=[{"name": file} for file in FILES[:3]]), "Each file counts once"),
        (result(reports=[{"name": file} for file in [*FILES, "a.py"]]), "Each file counts once"),
        (lambda seen: replace(seen, run=("error", 2)), "The run succeeded"),
        (lambda seen: replace(seen, run=("success", 1)), "The run succeeded"),
        (result(files=[], reports=[], ranking=[]), "Each file counts once"),
        (result(files=[], reports=[], ranking=[]), "The ranking equals"),
        (result(ranking=[{"name": "b"}]), "The ranking equals"),
    ],
)
def test_each_claim_fails_where_it_does_not_hold(
    tampered: Callable[[Evidence], Evidence], claim: str
) -> None:
    assert any(each.startswith(claim) for each in failed(tampered(what_was_seen())))


def test_every_claim_is_tested() -> None:
    assert len(judge(what_was_seen())) == 8
