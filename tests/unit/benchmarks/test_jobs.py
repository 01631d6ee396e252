"""Jobs: their order, and answers that contradict each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cases import CASES
from jobs import SOURCES, FailedError, Job, Results, jobs_of, variables_of
from report import row_of

CASE = replace(CASES[0], name="a", passes=("time", "calls"), slow=False)
SLOW = replace(CASE, name="slow", slow=True)


def answer(figure: float, state: str = "same") -> dict[str, object]:
    return {"samples": {"time_us": [figure]}, "state": state}


def test_sides_are_asked_by_turns_and_slow_cases_less_often() -> None:
    jobs = jobs_of([CASE, SLOW], "time", ("ours", "peer"), 3)

    assert [job.side for job in jobs] == ["ours", "peer"] * 5
    assert [job.case.name for job in jobs] == ["a"] * 6 + ["slow"] * 4


def test_only_cases_that_measure_it_are_asked() -> None:
    assert not jobs_of([CASE], "peak", ("ours", "peer"))


def test_a_figure_is_the_median_of_the_processes() -> None:
    results = Results()
    for figure in (1, 9, 2):
        results.add(Job(case=CASE, side="ours", what="time"), answer(figure))

    assert results.figure(CASE, "time_us", "ours") == 2
    assert results.figure(CASE, "time_us", "peer") is None


def test_a_side_that_ends_in_another_state_has_failed() -> None:
    results = Results()
    results.add(Job(case=CASE, side="ours", what="time"), answer(1))

    with pytest.raises(FailedError, match="final state differs from that of the side before it"):
        results.add(Job(case=CASE, side="peer", what="time"), answer(1, "other"))
    assert results.figure(CASE, "time_us", "peer") is None


def test_an_error_names_each_side_that_failed_at_this_pass() -> None:
    results = Results()
    results.failures["a", "ours", "time"] = "broken"
    results.failures["a", "peer", "time"] = "late"
    results.failures["a", "peer", "calls"] = "other pass"
    results.failures["slow", "peer", "time"] = "other case"

    assert results.error(CASE, "time") == "ours: broken; peer: late"


def test_this_tree_is_measured_whatever_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("PGHOST", "elsewhere")

    assert variables_of("ours")["PYTHONPATH"] == SOURCES
    for side in ("peer", "ref"):
        assert not {"PYTHONPATH", "PGHOST"} & variables_of(side).keys()


def test_the_file_has_five_words_per_figure_and_an_error_where_there_is_none() -> None:
    results = Results()
    results.add(Job(case=CASE, side="ours", what="time"), answer(2))
    results.add(Job(case=CASE, side="peer", what="time"), answer(5))
    written = row_of(CASE, "time_us", results, None).as_json()
    failed = row_of(SLOW, "time_us", results, "peer: late").as_json()

    assert written == {"case": "a", "metric": "time_us", "ours": 2, "peer": 5, "ratio": 2.5}
    assert failed == {
        "case": "slow", "metric": "time_us", "ours": None, "peer": None, "ratio": None, "error": "peer: late"
    }  # fmt: skip
