"""The report of a comparison: the table, the verdicts on bars, and the file."""

import json
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cases import METRICS, Case
from jobs import Results

GROWTH_CASES = ("loop_1000", "loop_10000")
MOST_GROWTH = 1.1
"""The maximum growth of our peak memory with ten times as many steps, as a ratio."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One metric of one case: a line of the table and an object in the file."""

    case: str
    unit: str
    metric: str
    ours: float | None
    peer: float | None
    error: str | None
    bar: str
    passed: bool | None
    """The verdict; None without a bar or without a figure."""

    @property
    def ratio(self) -> float | None:
        return self.peer / self.ours if self.ours and self.peer is not None else None

    def as_json(self) -> dict[str, object]:
        figures = {"ours": self.ours, "peer": self.peer, "ratio": self.ratio}
        rounded = {key: None if value is None else round(value, 4) for key, value in figures.items()}
        failure = {} if self.error is None else {"error": self.error}
        return {"case": self.case, "metric": self.metric, **rounded, **failure}


def rows_of(cases: list[Case], results: Results) -> list[Row]:
    """Make a row for each metric that was measured or failed."""
    return [
        row_of(case, metric, results, results.error(case, what))
        for case in cases
        for what in case.passes
        for metric in METRICS[what]
        if results.error(case, what) or results.figure(case, metric, "ours") is not None
    ]


def row_of(case: Case, metric: str, results: Results, error: str | None) -> Row:
    ours, peer = results.figure(case, metric, "ours"), results.figure(case, metric, "peer")
    bar, passed = "", None
    if metric == "time_us" and case.bar is not None:
        bar = f">= {case.bar:g}x"
        passed = None if not ours or peer is None else peer / ours >= case.bar
    elif metric == "round_trips" and case.most_round_trips is not None:
        bar = f"ours <= {case.most_round_trips:g}"
        passed = None if ours is None else ours <= case.most_round_trips
    unit = "run" if metric == "peak_kb" else case.unit
    return Row(
        case=case.name, unit=unit, metric=metric, ours=ours, peer=peer, error=error, bar=bar, passed=passed
    )


def show(console: Console, rows: list[Row]) -> None:
    table = Table(caption="Medians, per unit of the case. ratio = peer / ours.")
    for heading in ("case", "metric", "per", "ours", "peer", "ratio", "bar", ""):
        is_figure = heading in ("ours", "peer", "ratio")
        table.add_column(heading, justify="right" if is_figure else "left", no_wrap=True)
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        table.add_row(
            row.case, row.metric, row.unit, amount(row.ours), amount(row.peer),
            "-" if row.ratio is None else f"{row.ratio:,.1f}x", row.bar, verdict(row),
            end_section=following is None or following.case != row.case,
        )  # fmt: skip
    console.print(table)
    failures: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.error is not None:
            failures.setdefault((row.case, row.error), []).append(row.metric)
    for (case, error), metrics in failures.items():
        console.print(f"[red]failed[/red] {case} ({', '.join(metrics)}): {escape(error)}")


def verdict(row: Row) -> str:
    if row.error is not None:
        return "[red]failed[/red]"
    return {None: "", True: "[green]pass[/green]", False: "[yellow]missed[/yellow]"}[row.passed]


def amount(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:,.2f}"


def growth_passed(console: Console, rows: list[Row]) -> bool:
    """Print the growth of peak memory with the steps. Return True if it passed or was not measured."""
    peaks = {row.case: row for row in rows if row.metric == "peak_kb" and row.case in GROWTH_CASES}
    short, long = (peaks.get(case) for case in GROWTH_CASES)
    if short is None or long is None or not short.ours or not long.ours:
        return True
    ours = long.ours / short.ours
    peer = f"{long.peer / short.peer:.2f}x" if long.peer and short.peer else "-"
    passed = ours <= MOST_GROWTH
    outcome = "[green]pass[/green]" if passed else "[yellow]missed[/yellow]"
    console.print(
        f"Peak memory of a loop of 10,000 steps against one of 1,000: ours {ours:.2f}x, peer {peer}; "
        f"bar: ours <= {MOST_GROWTH}x: {outcome}"
    )
    return passed


def write(path: Path, rows: list[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([row.as_json() for row in rows], indent=1) + "\n")
