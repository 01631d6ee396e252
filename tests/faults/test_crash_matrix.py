"""A process is killed at every named point, in every durability, and another continues the run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from rich.console import Console
from rich.table import Table

from tests.faults.crash import KILLED, Crash, crash
from tests.faults.workload import BODIES, SUPERSTEPS

PLACES: Final = {
    "before the claim is sent": ("claim.send", "", "1"),
    "after the claim was acknowledged": ("claim.acknowledged", "", "1"),
    "before the first node's body": ("node.before", "plan", "1"),
    "after the first node's body": ("node.after", "plan", "1"),
    "before the fourth of six siblings": ("node.before", "work", "4"),
    "after the fourth of six siblings": ("node.after", "work", "4"),
    "before a finished sibling's results are sent": ("writes.send", "", "1"),
    "after they were acknowledged": ("writes.acknowledged", "", "1"),
    "after the slowest sibling's body": ("node.after", "slow", "1"),
    "before the first commit is sent": ("commit.send", "", "1"),
    "after it was acknowledged": ("commit.acknowledged", "", "1"),
    "before the second commit is sent": ("commit.send", "", "2"),
    "after the second was acknowledged": ("commit.acknowledged", "", "2"),
    "after the last node's body": ("node.after", "finish", "1"),
}
DURABILITIES: Final = ("sync", "async", "exit")
UNREACHED: Final = {
    (place, "exit")
    for place, (point, _, nth) in PLACES.items()
    if point.startswith("writes.") or (point.startswith("commit.") and nth == "2")
}
"""The places that durability "exit" never reaches, because it sends everything at once, at the end."""

APPLIED: Final = ["plan", "slow", *(body for body in BODIES if body.startswith("work")), "finish"]
"""The order of the writes: in each superstep, nodes by name come before Sends."""

_rows: list[tuple[str, str, str, Crash | None]] = []


@pytest.fixture(scope="module", autouse=True)
def matrix() -> Iterator[None]:
    """Print the matrix when it is complete; shown with `-s`."""
    yield
    table = Table(title="kill -9, then recover()")
    for column in ("killed", "durability", "bodies before", "stored", "again", "run"):
        table.add_column(column)
    for place, durability, again, result in _rows:
        if result is None:
            table.add_row(place, durability, "-", "-", "-", "never comes to this point")
        else:
            run = result.run or {}
            ended = f"{run.get('status')}, attempt {run.get('attempt')}"
            table.add_row(
                place, durability, str(result.before.total()), str(len(result.stored)), again, ended
            )
    Console(file=sys.stdout, width=130).print(table)


def again_of(result: Crash) -> set[str]:
    return {body for body in BODIES if result.before[body] and result.after[body]}


def may_run_again(result: Crash, durability: str) -> set[str]:
    """Return the bodies that each durability allows to run a second time."""
    if durability == "exit":
        return set(BODIES)
    if durability == "sync":
        started = max(
            (n for n, step in enumerate(SUPERSTEPS) if any(result.before[b] for b in step)), default=0
        )
        return set(SUPERSTEPS[started])
    reached = [n for n, step in enumerate(SUPERSTEPS) if any(result.before[b] for b in step)]
    return {body for n in reached[-3:] for body in SUPERSTEPS[n]}


@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("place", PLACES)
async def test_a_killed_run_is_resumed_where_it_stopped(
    place: str, durability: str, database_url: str, tmp_path: Path
) -> None:
    result = await crash(database_url, tmp_path / "log", durability, *PLACES[place])
    if (place, durability) in UNREACHED:
        assert result.exit_code == 0
        assert result.recovered == []
        _rows.append((place, durability, "", None))
        return
    again = again_of(result)
    _rows.append((place, durability, ", ".join(sorted(again)) or "none", result))
    assert result.exit_code == KILLED
    assert result.problems == []
    assert not again & (result.stored if durability != "exit" else set()), (
        "a stored result was computed again"
    )
    assert again <= may_run_again(result, durability)
    if PLACES[place][0] == "claim.send":
        assert result.recovered == []
        assert result.before == {}
        assert result.values["found"] == [f"1:{body}" for body in APPLIED]
        return
    assert result.run is not None
    assert result.run["status"] == "success"
    if result.recovered:
        assert [outcome.error for outcome in result.recovered] == [None]
        assert result.run["attempt"] == 2
    else:
        assert PLACES[place][0] == "commit.acknowledged", "only a run whose last commit was stored has ended"
    assert set(BODIES) == {body for body in BODIES if result.before[body] or result.after[body]}
    assert result.values["found"] == [f"{run}:{body}" for run in (1, 2) for body in APPLIED]
    assert result.values["ranked"] == sorted(result.values["found"][:-1])
