"""The comparison with another commit: the bound, omitted cases, failures."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from against import MOST, parse_arguments, passed, show
from cases import CASES
from jobs import Job, Results
from sides import Side

CASE = replace(CASES[0], name="known", passes=("time", "calls"))
NEW = replace(CASE, name="new")


def results_of(*, time: float, calls: float) -> Results:
    """Make the results of one case: 100 us and 100 calls at the commit, the given figures here."""
    results = Results()
    figures: dict[Side, tuple[float, float]] = {"ref": (100, 100), "ours": (time, calls)}
    for side, (microseconds, count) in figures.items():
        samples = {"time_us": [microseconds], "calls": [count]}
        results.add(Job(case=CASE, side=side, what="time"), {"samples": samples, "state": ""})
    return results


def shown(results: Results) -> str:
    file = io.StringIO()
    show(Console(file=file, width=200), results, [CASE, NEW], "abc", MOST)
    return file.getvalue()


@pytest.mark.parametrize(
    ("time", "calls", "most", "outcome"),
    [(114, 100, 1.15, True), (116, 100, 1.15, False), (100, 116, 1.15, False), (116, 116, 1.2, True)],
)
def test_the_bound_holds_for_time_and_for_calls(
    time: float, calls: float, most: float, outcome: bool
) -> None:
    assert passed(results_of(time=time, calls=calls), [CASE], most) is outcome


def test_a_process_that_the_machine_held_up_does_not_count() -> None:
    results = results_of(time=110, calls=100)
    for _ in range(2):
        held_up = {"samples": {"time_us": [300]}, "state": ""}
        results.add(Job(case=CASE, side="ours", what="time"), held_up)

    assert passed(results, [CASE], MOST)


def test_a_case_that_the_commit_cannot_run_is_named_and_left_out() -> None:
    results = results_of(time=110, calls=90)
    results.failures["new", "ref", "time"] = results.failures["new", "ref", "calls"] = "no such state [40]"

    text = shown(results)

    assert passed(results, [CASE, NEW], MOST)
    assert text.count("left out: abc does not run new: no such state [40]") == 1
    assert "1.10x" in text
    assert "0.90x" in text


def test_a_case_that_fails_here_is_an_error() -> None:
    results = results_of(time=100, calls=100)
    results.failures["known", "ours", "calls"] = "broken"

    assert not passed(results, [CASE], MOST)
    assert "failed known: broken" in shown(results)


def test_nothing_compared_is_no_success() -> None:
    assert not passed(Results(), [CASE], MOST)


def test_a_case_with_nothing_to_compare_has_no_row() -> None:
    assert "new" not in shown(results_of(time=100, calls=100))


def test_arguments_have_a_bound_rounds_and_a_choice_of_cases() -> None:
    plain = parse_arguments(["main"])
    asked = parse_arguments(["v1", "--most", "1.3", "--rounds", "2", "--postgres", "--only", "wide*"])

    assert (plain.ref, plain.most, plain.rounds, plain.postgres, plain.only) == ("main", 1.15, 5, False, None)
    assert (asked.ref, asked.most, asked.rounds, asked.postgres, asked.only) == (
        "v1",
        1.3,
        2,
        True,
        ["wide*"],
    )


def test_a_pattern_that_no_case_has_is_refused_with_the_names(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_arguments(["main", "--only", "wied*"])

    assert "no case is named wied*; choose from chain_1, chain_10, " in capsys.readouterr().err
